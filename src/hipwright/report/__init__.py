"""What people see of a run: one self-contained HTML page (docs/design.md)."""

from hipwright.report.collect import from_run, split
from hipwright.report.data import ReportData
from hipwright.report.html import render

__all__ = ["ReportData", "from_run", "render", "split"]
