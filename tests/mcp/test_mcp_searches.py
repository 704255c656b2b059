"""The tools that search, and the reports as resources: with the SDK's own client over stdio."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import pytest

pytest.importorskip("mcp")

from tests.mcp.server_process import connected, descendants, gone, refused, server_of, talk, text_of
from tests.mcp.subjects import PROGRAM

MODEL = '''"""Two equal blocks."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.map = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x):
        return x + torch.relu(self.map(self.norm(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x):
        return self.second(self.first(x))


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return []
'''


@pytest.mark.slow
def test_a_search_a_start_and_a_model(root: Path) -> None:
    (root / "two.py").write_text(MODEL)
    said: list[str] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        said.append(message or "")

    async def work() -> None:
        async with connected(root, "--keep") as client:
            call = {"task": "tasks/twice.py", "budget": 1}
            found = await client.call_tool("optimize", call, progress_callback=heard)
            assert found.structured_content is not None and not found.is_error, text_of(found)
            assert found.structured_content["status"] == "pass" and "def forward" in found.structured_content["program"]
            assert any("capturing the graph" in line for line in said)

            begun = await client.call_tool("start_from", {**call, "budget": 2, "kernel": PROGRAM})
            assert begun.structured_content is not None and not begun.is_error, text_of(begun)
            assert begun.structured_content["start"], "the winner is compared with the start"

            ranked = await client.call_tool("model", {"script": "two.py", "only_profile": True})
            assert ranked.structured_content is not None and not ranked.is_error, text_of(ranked)
            assert ranked.structured_content["regions"][0]["class"] == "Block" and "Block x 2" in text_of(ranked)

            runs = (await client.list_resources()).resources
            assert len(runs) == 2 and all(one.uri.startswith("hipwright://runs/") for one in runs)
            (page,) = (await client.read_resource(runs[0].uri)).contents
            assert (
                page.mime_type == "text/html"
                and "<html" in page.text
                and found.structured_content["run"] in str([one.uri for one in runs])
            )

    talk(work)


def test_what_cannot_be_searched_is_refused_in_one_line(root: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with connected(root) as client:
            assert "is outside" in (await refused(client, "optimize", task="../outside.py"))["error"]
            assert "is outside" in (await refused(client, "model", script="../outside.py"))["error"]
            assert "no such file" in (await refused(client, "model", script="none.py:make"))["error"]
            assert "budget" in (await refused(client, "optimize", task="tasks/twice.py", budget=0))["error"]
            wrong = await refused(client, "start_from", task="tasks/twice.py", kernel="x", language="triton")
            assert "language" in wrong["error"]
            broken = await refused(client, "start_from", task="tasks/twice.py", kernel="int x;", language="cuda")
            assert broken["whose"] == "program" and broken["error"]
            assert (await client.list_resources()).resources == []

    talk(work)


def test_a_search_without_keep_leaves_nothing(root: Path) -> None:
    async def work() -> None:
        async with connected(root) as client:
            found = await client.call_tool("optimize", {"task": "tasks/twice.py", "budget": 1})
            assert found.structured_content is not None and found.structured_content["status"] == "pass"
            assert not (root / ".hipwright" / "archive.sqlite").exists()

    talk(work)


def test_a_cancelled_search_ends_with_its_processes(root: Path) -> None:
    async def work() -> None:
        async with connected(root) as client:
            before, running = descendants(server_of()), anyio.Event()

            async def heard(progress: float, total: float | None, message: str | None) -> None:
                if "capturing" in (message or ""):
                    running.set()

            async def search() -> None:
                call = {"task": "tasks/twice.py", "budget": 200}
                await client.call_tool("optimize", call, progress_callback=heard)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(search)
                await running.wait()
                during = descendants(server_of()) - before
                tasks.cancel_scope.cancel()
            start = time.monotonic()
            assert during and gone(during, 10) and time.monotonic() - start < 10

    talk(work)
