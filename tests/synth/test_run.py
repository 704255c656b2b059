"""Synthesis for real: every task passes, the order of work changes nothing, and each reason to drop is met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hipwright.errors import BadInput, OutOfBudget
from hipwright.sandbox import Zygote
from hipwright.synth import run
from hipwright.synth.constrain import read_wanted, satisfies
from hipwright.synth.records import Draft, DroppedDraft, Made, Mode
from hipwright.synth.run import SynthesisRequest, Written, synthesise
from hipwright.synth.store import SynthStore, read_dropped, read_made

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
    with run.open_zygotes(2) as opened:
        yield opened


def made(
    folder: Path, plan: SynthesisRequest, zygotes: Sequence[Zygote], *, resume: bool = False, **options: Any
) -> list[Made]:
    with SynthStore(folder, plan.settings(), resume=resume) as store:
        return list(synthesise(plan, store, zygotes, **options))


class Scripted:
    """An LLM mind of given answers; one that is not there is what a refused one is."""

    def __init__(self, *bodies: str) -> None:
        self.bodies = bodies
        self.asked: list[tuple[int, Mode, str]] = []

    def __call__(self, index: int, mode: Mode, parents: Mapping[str, str], constraint: str, zygote: Zygote) -> Written:
        self.asked.append((index, mode, constraint))
        draft = Draft(name=f"llm_{index}", source="", mode=mode, mind="llm")
        if index >= len(self.bodies):
            return None, (DroppedDraft(draft=draft, stage="budget", why="spent"),)
        source = TASK.format(self.bodies[index])
        tried = DroppedDraft(draft=draft, stage="static", why="first answer")
        return Draft(name=f"llm_{index}", source=source, mode=mode, mind="llm"), (tried,) * (index == 0)


@pytest.mark.slow
def test_three_modes_without_a_model_and_a_later_call_goes_on(tmp_path: Path, zygotes: list[Zygote]) -> None:
    modes: tuple[Mode, ...] = ("composition", "mutation", "constraint")
    parents = {"relu": TASK.format("x.relu() * 2")}
    plan = SynthesisRequest(count=3, modes=modes, seed=5, parents=parents)
    heard: list[dict[str, Any]] = []
    first = made(tmp_path / "a", plan, zygotes, listener=lambda kind, data: heard.append({"kind": kind, **data}))
    assert len(first) == 3 and heard[-1]["done"] == heard[-1]["count"] == 3 and heard[-1]["kind"] == "synth"
    longer = SynthesisRequest(count=4, modes=modes, seed=5, parents=parents)
    more = made(tmp_path / "a", longer, zygotes[:1], resume=True)
    at_once = made(tmp_path / "b", longer, zygotes)
    assert more == at_once and more[:3] == first
    assert {one.draft.mode for one in more} == set(modes)
    for name in ("tasks.jsonl", "dropped.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    for one in (one for one in more if one.draft.mode == "constraint"):
        assert satisfies(one, read_wanted(one.draft.detail)[0]) == ""
    for one in (one for one in more if one.draft.mode == "mutation"):
        assert one.draft.parents and one.draft.detail.startswith("relu: ")
    assert len({one.graph for one in more}) == 4 and all(one.roofline_us and one.operators for one in more)


def test_each_reason_to_drop_is_counted(tmp_path: Path, zygotes: list[Zygote]) -> None:
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
    plan = SynthesisRequest(count=3, writer=Scripted(*bodies), llm_share=1.0)
    found = made(tmp_path, plan, zygotes, overlaps=lambda one: "held" if "cumsum" in one.draft.source else "")
    assert [one.draft.name for one in found] == ["llm_0", "llm_3", "llm_10"]
    first, *dropped = read_dropped(tmp_path)
    assert first.stage == "static" and first.why == "first answer", "what came before an answer that was taken"
    assert [one.stage for one in dropped] == [stage for stage in bodies.values() if stage]
    assert read_made(tmp_path) == found


def test_a_near_copy_is_dropped(tmp_path: Path, zygotes: list[Zygote]) -> None:
    plan = SynthesisRequest(count=1, writer=Scripted("torch.softmax(x.sigmoid() + x, dim=-1).relu()"), llm_share=1.0)
    assert len(made(tmp_path, plan, zygotes)) == 1
    with SynthStore(tmp_path, plan.settings(), resume=True) as store:
        hygiene = run._Hygiene(store.made)
        twin = replace(store.made[0], graph="other", draft=replace(store.made[0].draft, name="twin"))
        assert hygiene(twin) == ("near duplicate", "nearly the text of llm_0")


def test_a_constraint_is_checked_on_the_finished_task_and_the_search_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zygotes: list[Zygote]
) -> None:
    monkeypatch.setattr(run, "FRUITLESS", 3)
    writer = Scripted("torch.softmax(x, dim=-1).relu()")
    plan = SynthesisRequest(
        count=1, modes=("constraint",), constraint="two outputs, butterfly", writer=writer, llm_share=0.0
    )
    assert made(tmp_path / "out", plan, zygotes) == []
    assert all(one[1:] == ("constraint", "two outputs, butterfly") for one in writer.asked), "the model reads the rest"
    stages = [one.stage for one in read_dropped(tmp_path / "out")]
    assert stages == ["static", "constraint", "budget", "budget"]


def test_words_nobody_can_read_are_named() -> None:
    plan = SynthesisRequest(count=1, modes=("constraint",), constraint="bf16, butterfly exchange")
    with pytest.raises(BadInput, match="does not know: butterfly, exchange"):
        plan.wanted()


def test_a_fault_of_the_provider_ends_the_run_with_everything_kept(tmp_path: Path, zygotes: list[Zygote]) -> None:
    class Gone(Scripted):
        def __call__(
            self, index: int, mode: Mode, parents: Mapping[str, str], constraint: str, zygote: Zygote
        ) -> Written:
            if index == 1:
                raise OutOfBudget("spent")
            return super().__call__(index, mode, parents, constraint, zygote)

    plan = SynthesisRequest(count=3, writer=Gone("torch.softmax(x, dim=-1).relu()"), llm_share=1.0)
    with pytest.raises(OutOfBudget):
        made(tmp_path / "out", plan, zygotes)
    assert [one.draft.name for one in read_made(tmp_path / "out")] == ["llm_0"]
