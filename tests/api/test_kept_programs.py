"""The engine's programs that a run keeps: each is written once, and named defaults are those of no choice."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.api import task_engine
from hipwright.api.task_engine import KeptPrograms
from hipwright.engine import author
from hipwright.engine.authoring import Authored
from hipwright.search.operators import complete
from tests.engine.harness import Op, captured

GRAPHS = {
    "row": lambda: captured(Op(lambda x: torch.softmax(x, -1) * 2), [torch.randn(6, 40)]),
    "two": lambda: captured(Op(lambda x, y: (torch.softmax(x, -1), y.cumsum(-1))), [torch.randn(6, 40)] * 2),
    "product": lambda: captured(Op(lambda x, y: torch.relu(x @ y)), [torch.randn(64, 64), torch.randn(64, 64)]),
}


def test_what_is_asked_for_twice_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    def counted(graph: Any, choices: Any) -> Authored:
        written.append(choices)
        return author(graph, choices)

    monkeypatch.setattr(task_engine, "author", counted)
    graph = GRAPHS["row"]()
    programs = KeptPrograms(graph)
    assert programs.write({"fuse": True, "a": 1}) == author(graph).program
    assert programs.explain({"a": 1, "fuse": True}) == author(graph).explanation
    assert len(written) == 1
    programs.write({"fuse": 1, "a": 1})  # another value, though it is equal
    assert len(written) == 2
    monkeypatch.setattr(task_engine, "_KEPT", 1)
    programs.write({"fuse": False})
    programs.write({"fuse": True, "a": 1})
    assert len(written) == 4


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("base", [{}, {"split": True, "default:SPLIT_STAGES": 3}], ids=["plain", "measured"])
def test_named_defaults_give_the_program_of_no_choice(name: str, base: dict[str, Any]) -> None:
    graph = GRAPHS[name]()
    made = author(graph, base)
    named = author(graph, complete(made.space, base))
    assert named.program == made.program
    assert named.explanation == made.explanation
