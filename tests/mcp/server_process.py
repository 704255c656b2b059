"""The MCP server as a process: its client, and its child processes."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

SERVER = [sys.executable, "-m", "hipwright", "mcp"]


def parameters(root: Path, *options: str) -> StdioServerParameters:
    env = {name: value for name, value in os.environ.items() if name.startswith(("HIPWRIGHT", "XDG", "TMP"))}
    env |= {"HIPWRIGHT_HOME": str(root / ".hipwright")}
    command, *rest = SERVER
    arguments = [*rest, "--root", str(root), "--target", "gfx942", "--target", "cpu", *options]
    return StdioServerParameters(command=command, args=arguments, env=env)


@asynccontextmanager
async def connected(root: Path, *options: str) -> AsyncIterator[Client]:
    async with Client(stdio_client(parameters(root, *options)), read_timeout_seconds=120) as client:
        yield client


def talk(work: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine, within four minutes."""

    async def limited() -> None:
        with anyio.fail_after(240):
            await work()

    asyncio.run(limited())


def text_of(result: Any) -> str:
    (block,) = result.content
    return str(block.text)


async def refused(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured error of a call that must fail."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error and result.structured_content is not None
    content = text_of(result)
    assert content.startswith("error: ") and "Traceback" not in content and len(content.splitlines()) <= 2
    return dict(result.structured_content)


def server_of() -> int:
    """The process id of the one server that this process started."""
    found = [pid for pid in children(os.getpid()) if b"\0mcp\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(found) == 1
    return found[0]


def children(pid: int) -> set[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return {int(child) for task in tasks for child in (task / "children").read_text().split()}
    except OSError:
        return set()


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        new = children(waiting.pop()) - found
        found |= new
        waiting += new
    return found


def gone(pids: set[int], seconds: float) -> bool:
    """Whether all have ended in time; what is dead and not yet collected has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
