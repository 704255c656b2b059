"""Run something hostile, with limits (docs/sandbox.md)."""

from hipwright.sandbox.bwrap import SANDBOX_HINT, available
from hipwright.sandbox.limits import Limits
from hipwright.sandbox.tool import ToolResult, run_tool

__all__ = ["SANDBOX_HINT", "Limits", "ToolResult", "available", "run_tool"]
