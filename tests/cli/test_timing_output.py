"""The command line's output for a measured target, and for what a timing leaves unknown."""

from __future__ import annotations

import io
import json
import re

import pytest
from msgspec import structs
from rich.console import Console

from hipwright.api.outcome import not_measured, result_object
from hipwright.cli.display.tables import models_line, print_evaluation
from hipwright.measure.gain import gains
from hipwright.records import Build, Estimate, Evaluation, TargetResult, Timing, Verdict, Versus

VERSUS = Versus(
    baseline="eager",
    speedup=1.5,
    interval=(1.45, 1.55),
    samples_ms=(1.0, 1.0),
    baseline_ms=(1.5, 1.5),
    pairs=2,
    stopped="precise",
    latency_speedup=1.2,
)


def timed(target: str, device: str, architecture: str) -> Evaluation:
    timing = Timing(
        device=device,
        architecture=architecture,
        median_ms=1.0,
        versus={"eager": VERSUS},
        floor_ms=0.7,
        bound="memory",
        roofline_fraction=0.7,
        clock_gap=0.002,
    )
    result = TargetResult(
        target=target, build=Build(target=target, ok=True), verdict=Verdict(status="pass"), timing=timing
    )
    return Evaluation(task="t", program="p", status="pass", coverage=1.0, targets={target: result})


def printed(evaluation: Evaluation) -> str:
    out = Console(file=io.StringIO(), width=160)
    print_evaluation(out, "task", evaluation, ())
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_the_table_tells_whose_speed_it_is() -> None:
    text = printed(timed("cuda", "NVIDIA H200", "sm_90"))
    for fact in ("MEASURED", "HIP on NVIDIA H200", "1.50× (1.45 to 1.55)", "70 % of 0.7 ms", "eager", "precise enough"):
        assert fact in text, fact
    assert "MI300X" in printed(timed("rocm", "AMD Instinct MI300X", "gfx942"))
    bare = structs.replace(timed("cuda", "NVIDIA H200", "sm_90"), targets={})
    assert "MEASURED" not in printed(bare)


def test_json_carries_the_whole_record() -> None:
    evaluation = timed("cuda", "NVIDIA H200", "sm_90")
    timing = json.loads(json.dumps(result_object(evaluation, ["cuda"])))["targets"]["cuda"]["timing"]
    assert Timing.from_dict(timing) == evaluation.targets["cuda"].timing


def test_an_nvidia_gpu_leaves_amds_speed_unknown() -> None:
    lines = not_measured(["gfx942", "cuda", "cpu"], timed("cuda", "NVIDIA H200", "sm_90"))
    assert any("no AMD GPU was used" in line and "gfx942" in line for line in lines)
    assert any("HIP on NVIDIA H200" in line and "no AMD GPU's speed" in line for line in lines)


def test_an_amd_gpu_leaves_the_other_ones_unknown() -> None:
    lines = not_measured(["gfx942", "gfx950", "rocm"], timed("rocm", "AMD Instinct MI300X", "gfx942"))
    assert len(lines) == 1 and "the AMD GPU here is gfx942" in lines[0] and "gfx950" in lines[0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "none was asked"),
        ({"calls": 2, "tokens": 10}, "2 calls, 10 tokens, $0.0000"),
        ({"silent": [{"model": "m", "calls": 2, "why": "m: 401", "hint": "set KEY"}]}, "m: 401 (2 calls without an"),
    ],
)
def test_the_line_on_models_says_what_they_were_asked(changes: dict[str, object], says: str) -> None:
    spent = {"calls": 0, "tokens": 0, "usd": 0.0, "unpriced": 0, "lost": 0, "lost_usd": 0.0, "silent": []}
    assert says in models_line({**spent, **changes})


def test_the_first_lines_tell_if_it_helped() -> None:
    """At 80 columns: the baseline, the kernels' time, the gain, whose figures they are, and what was fused."""
    estimate = Estimate(target="gfx942", microseconds=4.0, bound="launch", roofline_fraction=0.2)
    build = Build(target="gfx942", ok=True)
    found = {"gfx942": TargetResult(target="gfx942", build=build, estimate=estimate)}
    evaluation = Evaluation(task="t", program="p", status="pass", coverage=1.0, targets=found, library={"mm": 0.25})
    unfused = structs.replace(estimate, microseconds=30.0)
    out = Console(file=io.StringIO(), width=80)
    fused = [{"kernel": "mean_pow_mul", "operators": ["mean", "pow_1", "mul_3", "mul_4"], "mapping": "rows"}]
    print_evaluation(out, "task", evaluation, (), gains(found, {"gfx942": unfused}), fused)
    assert isinstance(out.file, io.StringIO)
    text = out.file.getvalue()
    lines = text.splitlines()
    assert lines[0].startswith("pass  task  verification took")
    assert re.search(r"unfused +kernels take +gain", lines[1])
    assert re.search(r"gfx942 +compiles +30 µs +4 µs +7.5x faster +ESTIMATE", lines[2])
    assert "launch bound on gfx942: the launch takes longer than the work" in text
    assert "fused: mean, pow, mul (2) -> kernel mean_pow_mul" in text
    assert "mm (25 %)" in text
    measured = printed(timed("cuda", "NVIDIA H200", "sm_90"))
    assert "ESTIMATE" not in measured
