"""Runs hostile code under limits (docs/sandbox.md)."""

from hipwright.sandbox.bwrap import NEEDS_SANDBOX, available, sandbox_hint
from hipwright.sandbox.child import attach_fd, crash_page, given_fd, lockdown
from hipwright.sandbox.failures import RemoteFailure, WorkerDied, WorkerFlood, WorkerTimeout
from hipwright.sandbox.gpu import GpuAccess, gpu_count
from hipwright.sandbox.limits import Limits
from hipwright.sandbox.loans import Borrower, Lender, MakeZygote
from hipwright.sandbox.oneshot import OneShotPool
from hipwright.sandbox.session import Session
from hipwright.sandbox.tool import ToolResult, run_tool
from hipwright.sandbox.zygote import Zygote, python_folders, python_paths

__all__ = [
    "NEEDS_SANDBOX",
    "Borrower",
    "GpuAccess",
    "Lender",
    "Limits",
    "MakeZygote",
    "OneShotPool",
    "RemoteFailure",
    "Session",
    "ToolResult",
    "WorkerDied",
    "WorkerFlood",
    "WorkerTimeout",
    "Zygote",
    "attach_fd",
    "available",
    "crash_page",
    "given_fd",
    "gpu_count",
    "lockdown",
    "python_folders",
    "python_paths",
    "run_tool",
    "sandbox_hint",
]
