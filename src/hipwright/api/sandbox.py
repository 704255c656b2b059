"""The check that a sandbox is there, before work that needs one for every item."""

from __future__ import annotations

from hipwright.errors import SandboxMissing


def require_sandbox(unsafe: bool) -> None:
    """SandboxMissing where nothing can be contained on this machine, unless the caller asked for no sandbox."""
    from hipwright.sandbox import SANDBOX_HINT, available

    works, why = available()
    if not (works or unsafe):
        raise SandboxMissing(f"no sandbox: {why}", hint=SANDBOX_HINT)
