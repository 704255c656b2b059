"""What people see of a run: one self-contained HTML page (docs/design.md)."""

from hipwright.report.data import Proposal, ReportData
from hipwright.report.html import render

__all__ = ["Proposal", "ReportData", "render"]
