"""Run something hostile, with limits (docs/sandbox.md)."""

from hipwright.sandbox.bwrap import SANDBOX_HINT, available
from hipwright.sandbox.child import crash_page, lockdown
from hipwright.sandbox.failures import RemoteFailure, WorkerDied, WorkerTimeout
from hipwright.sandbox.limits import Limits
from hipwright.sandbox.tool import ToolResult, run_tool
from hipwright.sandbox.zygote import Session, Zygote

__all__ = [
    "SANDBOX_HINT", "Limits", "RemoteFailure", "Session", "ToolResult", "WorkerDied", "WorkerTimeout", "Zygote",
    "available", "crash_page", "lockdown", "run_tool",
]  # fmt: skip
