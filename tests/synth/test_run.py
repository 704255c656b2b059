"""Runs of synthesis: results do not depend on the workers, and each reason to drop a draft occurs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hipwright.errors import BadInput, OutOfBudget
from hipwright.sandbox import Zygote
from hipwright.synth import run
from hipwright.synth.constrain import parse_constraints, violation
from hipwright.synth.duplicates import DuplicateFilter
from hipwright.synth.records import Draft, DroppedDraft, Mode, SyntheticTask
from hipwright.synth.request import DraftOutcome, SynthesisRequest
from hipwright.synth.run import synthesise
from hipwright.synth.store import SynthStore
from hipwright.synth.workers import open_zygotes
from tests.synth.reading import read_dropped, read_tasks

TASK = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {}


def get_inputs():
    return [torch.randn(8, 24)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def zygotes() -> Iterator[list[Zygote]]:
    with open_zygotes(2) as opened:
        yield opened


def run_synthesis(
    folder: Path, request: SynthesisRequest, zygotes: Sequence[Zygote], *, resume: bool = False, **options: Any
) -> list[SyntheticTask]:
    with SynthStore(folder, request.settings(), resume=resume) as store:
        return list(synthesise(request, store, zygotes, **options))


class Scripted:
    """A draft writer with given answers; for an index without one it reports an exhausted budget."""

    def __init__(self, *bodies: str) -> None:
        self.bodies = bodies
        self.asked: list[tuple[int, Mode, str]] = []

    def __call__(
        self, index: int, mode: Mode, parents: Mapping[str, str], constraint: str, zygote: Zygote
    ) -> DraftOutcome:
        self.asked.append((index, mode, constraint))
        draft = Draft(name=f"llm_{index}", source="", mode=mode, author="llm")
        if index >= len(self.bodies):
            return None, (DroppedDraft(draft=draft, stage="budget", why="spent"),)
        source = TASK.format(self.bodies[index])
        tried = DroppedDraft(draft=draft, stage="static", why="first answer")
        return Draft(name=f"llm_{index}", source=source, mode=mode, author="llm"), (tried,) * (index == 0)


@pytest.mark.slow
def test_three_modes_and_a_resumed_run_with_a_larger_count(tmp_path: Path, zygotes: list[Zygote]) -> None:
    modes: tuple[Mode, ...] = ("composition", "mutation", "constraint")
    parents = {"relu": TASK.format("x.relu() * 2")}
    request = SynthesisRequest(count=3, modes=modes, seed=5, parents=parents)
    events: list[dict[str, Any]] = []
    first = run_synthesis(
        tmp_path / "a", request, zygotes, listener=lambda kind, data: events.append({"kind": kind, **data})
    )
    assert len(first) == 3 and events[-1]["done"] == events[-1]["count"] == 3 and events[-1]["kind"] == "synth"
    longer = SynthesisRequest(count=4, modes=modes, seed=5, parents=parents)
    more = run_synthesis(tmp_path / "a", longer, zygotes[:1], resume=True)
    at_once = run_synthesis(tmp_path / "b", longer, zygotes)
    assert more == at_once and more[:3] == first
    assert {one.draft.mode for one in more} == set(modes)
    for name in ("tasks.jsonl", "dropped.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    for one in (one for one in more if one.draft.mode == "constraint"):
        assert violation(one, parse_constraints(one.draft.detail)[0]) == ""
    for one in (one for one in more if one.draft.mode == "mutation"):
        assert one.draft.parents and one.draft.detail.startswith("relu: ")
    assert len({one.graph for one in more}) == 4 and all(one.roofline_us and one.operators for one in more)


def test_each_reason_to_drop_a_draft(tmp_path: Path, zygotes: list[Zygote]) -> None:
    bodies = {
        "torch.softmax(x, dim=-1).relu()": "",
        "x * 0": "degenerate",
        "torch.softmax(x, -1).relu()": "duplicate",
        "torch.softmax(x * 2, -1).relu().abs()": "",
        "(x.abs() - 5).log()": "nonfinite",
        "torch.rand_like(x)": "random",
        "open('x')": "static",
        "(x.gelu(": "static",
        "x[x > 0]": "capture",
        "x.cumsum(0).tanh().amax(1)": "overlap",
        "x.sin().cumprod(1)": "",
    }
    request = SynthesisRequest(count=3, writer=Scripted(*bodies), llm_share=1.0)
    found = run_synthesis(
        tmp_path, request, zygotes, overlaps=lambda one: "held" if "cumsum" in one.draft.source else ""
    )
    assert [one.draft.name for one in found] == ["llm_0", "llm_3", "llm_10"]
    first, *dropped = read_dropped(tmp_path)
    assert first.stage == "static" and first.why == "first answer", "a draft refused before the one that was taken"
    assert [one.stage for one in dropped] == [stage for stage in bodies.values() if stage]
    assert read_tasks(tmp_path) == found


def test_a_near_copy_is_dropped(tmp_path: Path, zygotes: list[Zygote]) -> None:
    request = SynthesisRequest(count=1, writer=Scripted("torch.softmax(x.sigmoid() + x, dim=-1).relu()"), llm_share=1.0)
    assert len(run_synthesis(tmp_path, request, zygotes)) == 1
    with SynthStore(tmp_path, request.settings(), resume=True) as store:
        duplicates = DuplicateFilter(store.tasks)
        twin = replace(store.tasks[0], graph="other", draft=replace(store.tasks[0].draft, name="twin"))
        assert duplicates(twin) == ("near duplicate", "nearly the text of llm_0")


def test_a_constraint_is_checked_on_the_finished_task_and_the_run_ends_after_fruitless_indices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zygotes: list[Zygote]
) -> None:
    monkeypatch.setattr(run, "MAX_FRUITLESS", 3)
    writer = Scripted("torch.softmax(x, dim=-1).relu()")
    request = SynthesisRequest(
        count=1, modes=("constraint",), constraint="two outputs, butterfly", writer=writer, llm_share=0.0
    )
    assert run_synthesis(tmp_path / "out", request, zygotes) == []
    assert all(one[1:] == ("constraint", "two outputs, butterfly") for one in writer.asked), (
        "the writer gets the whole constraint"
    )
    stages = [one.stage for one in read_dropped(tmp_path / "out")]
    assert stages == ["static", "constraint", "budget", "budget"]


def test_unknown_words_of_a_constraint_are_named() -> None:
    request = SynthesisRequest(count=1, modes=("constraint",), constraint="bf16, butterfly exchange")
    with pytest.raises(BadInput, match="does not know: butterfly, exchange"):
        request.parsed_constraint()


def test_a_provider_error_ends_the_run_and_keeps_its_tasks(tmp_path: Path, zygotes: list[Zygote]) -> None:
    class Gone(Scripted):
        def __call__(
            self, index: int, mode: Mode, parents: Mapping[str, str], constraint: str, zygote: Zygote
        ) -> DraftOutcome:
            if index == 1:
                raise OutOfBudget("spent")
            return super().__call__(index, mode, parents, constraint, zygote)

    request = SynthesisRequest(count=3, writer=Gone("torch.softmax(x, dim=-1).relu()"), llm_share=1.0)
    with pytest.raises(OutOfBudget):
        run_synthesis(tmp_path / "out", request, zygotes)
    assert [one.draft.name for one in read_tasks(tmp_path / "out")] == ["llm_0"]
