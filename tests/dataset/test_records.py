"""Pairs: their keys, JSON, and the figures taken from an evaluation."""

from __future__ import annotations

from msgspec.structs import replace

from hipwright.dataset.records import BuildSummary, Pair, build_summaries, estimates_us, measured_timing
from hipwright.records import Build, Estimate, Evaluation, KernelResources, Program, TargetResult

PAIR = Pair(
    task="t",
    task_name="relu",
    task_source="text",
    program=Program(text="p"),
    kind="engine",
    correct=True,
    status="pass",
)


def test_a_key_does_not_depend_on_the_evaluation() -> None:
    same = replace(PAIR, coverage=0.5, split="train", provenance={"seed": 3}, evidence="words")
    others = [
        replace(PAIR, kind="variant"),
        replace(PAIR, task="u"),
        replace(PAIR, program=Program(text="p", knobs={"BLOCK": 64})),
        replace(PAIR, before=Program(text="q")),
    ]
    assert same.key == PAIR.key
    assert len({PAIR.key, *(one.key for one in others)}) == 5


def test_a_pair_is_read_back_equal_from_json() -> None:
    full = replace(
        PAIR, before=Program(text="q"), builds={"gfx942": BuildSummary(ok=True, vgpr=9)}, operators=("a", "b")
    )
    assert Pair.from_json(full.to_json()) == full


def test_build_summaries_have_the_largest_use_and_the_lowest_occupancy() -> None:
    kernels = (
        KernelResources(name="a", vgpr=20, sgpr=4, lds_bytes=0, occupancy=8),
        KernelResources(name="b", vgpr=10, sgpr=8, lds_bytes=512, occupancy=4),
    )
    found = Evaluation(
        task="t",
        program="p",
        status="pass",
        targets={
            "cpu": TargetResult(target="cpu", build=Build(target="cpu", ok=True)),
            "gfx942": TargetResult(
                target="gfx942",
                build=Build(target="gfx942", ok=True, kernels=kernels),
                estimate=Estimate(target="gfx942", microseconds=3.5, bound="memory", roofline_fraction=0.5),
            ),
            "gfx950": TargetResult(target="gfx950", build=Build(target="gfx950", ok=False)),
        },
    )
    assert build_summaries(found) == {
        "gfx942": BuildSummary(ok=True, kernels=2, vgpr=20, sgpr=8, lds_bytes=512, occupancy=4),
        "gfx950": BuildSummary(ok=False),
    }
    assert estimates_us(found) == {"gfx942": 3.5} and measured_timing(found) is None
