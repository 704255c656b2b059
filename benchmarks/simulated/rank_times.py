"""Times of counted programs on a GPU, beside the static estimate of the same builds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.common import ROOT
from benchmarks.timing.runner import ProgramRunner, open_runner
from benchmarks.timing.sides import OFF, TimedSides
from hipwright.errors import HipwrightError
from hipwright.measure.estimate import estimate
from hipwright.program import parse
from hipwright.program.lower.trace import trace
from hipwright.records import Program
from hipwright.targets.cuda import SM_90
from hipwright.torchio import full_precision


def times(rows: Sequence[Mapping[str, Any]], target: str, rounds: int, end: float) -> Iterator[dict[str, Any]]:
    """A row for each counted one while there is time: {"task", "device", "programs": [{"name", "us", "simulated_us",
    "static_us"}], "left_out": {name: why}}, or {"task", "failed"}. target: "cuda", or "cpu" to try it."""
    full_precision()
    with open_runner(target) as runner:
        for row in rows:
            if time.monotonic() > end:
                print("the time is over", file=sys.stderr)
                return
            started = time.monotonic()
            try:
                found = timed(runner, row, rounds)
            except (HipwrightError, RuntimeError) as error:  # torch's own: no memory, a fault of the device
                found = {"task": row["task"], "failed": str(error).splitlines()[0][:200]}
            print(f"{row['task']}: {time.monotonic() - started:.1f} s {found.get('failed', '')}", file=sys.stderr)
            yield found


def timed(runner: ProgramRunner, row: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    """One task. A program that does not build or whose results are off is left out."""
    counted = {one["name"]: one for one in row["programs"]}
    programs = {name: Program(text=one["text"], knobs=one["knobs"]) for name, one in counted.items()}
    sides = TimedSides(runner, ROOT / row["task"], compiled=False)
    base = next(iter(programs))  # the default is missing where its count was left out
    sides.build_all(programs, base)
    left_out = {name: why for name, why in sides.refused.items() if name in programs}
    left_out |= {name: f"results are off by {off:.2g}" for name, off in sides.off.items() if not off <= OFF}
    measured = sides.times([name for name in programs if name in sides.sides], rounds, base)
    found = [
        {
            "name": name,
            "us": round(us, 3),
            "simulated_us": counted[name]["simulated_us"],
            "static_us": static_us(runner, programs[name], sides),
        }
        for name, (us, _) in measured.items()
        if name not in left_out
    ]
    return {"task": row["task"], "device": device_name(runner), "programs": found, "left_out": left_out}


def static_us(runner: ProgramRunner, program: Program, sides: TimedSides) -> float | None:
    """The static estimate of the build for the GPU at hand; None on a processor, whose builds have no mix, and
    where the plan does not run without data."""
    if runner.target == "cpu":
        return None
    try:
        seen = trace(parse(program.text), program.knobs, sides.state, sides.slots[0])
    except (HipwrightError, RuntimeError):
        return None
    return estimate(SM_90, runner.build(program), seen["launches"], seen["ops"], 0.0).microseconds


def device_name(runner: ProgramRunner) -> str:
    """The GPU's name, or "cpu"."""
    import torch

    return "cpu" if runner.target == "cpu" else str(torch.cuda.get_device_name(runner.device))
