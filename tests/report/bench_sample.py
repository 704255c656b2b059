"""Rows of an artificial benchmark for the page's tests: invented figures in the form of real rows."""

from __future__ import annotations

import random

from hipwright.evaluation.bench import BenchRow, Speedup
from hipwright.evaluation.figures import figures
from hipwright.report.bench_page import BenchPage


def timed_row(number: int, speedup: float | None, *, text: str = "", seed: int = 0) -> BenchRow:
    """One row; speedup None: a failure."""
    rng = random.Random(f"{seed} {number}")
    names = {"key": f"k{number}", "task": f"level1/{number}_{text or 'Some_operator_of_a_kind'}", "level": 1}
    names |= {"candidate": f"level_1_problem_{number}_sample_0_kernel.py", "form": "program", "program": f"p{number}"}
    if speedup is None:
        message = text or "output: element 7 is 1.5, expected 2.5"
        failed = {"status": "wrong_value", "fault": "candidate", "stage": "verify", "targets": {"cuda": "wrong_value"}}
        return BenchRow(**names, **failed, compiled=True, message=message)
    half = speedup * rng.uniform(0.004, 0.06)
    eager = rng.uniform(0.02, 3.0)
    speedups = {
        name: Speedup(speedup=s, interval=(s - half, s + half), baseline_ms=s * eager / speedup, at_roofline=s * 1.4)
        for name, s in (("eager", speedup), ("compile", speedup * rng.uniform(0.5, 1.05)))
    }
    ms = eager / speedup
    return BenchRow(
        **names,
        status="pass",
        compiled=True,
        correct=True,
        coverage=rng.choice([1.0, 1.0, 0.4]),
        own_time=1.0,
        targets={"cuda": "pass", "gfx942": "compiles"},
        estimates_us={"gfx942": 12.5},
        timed_on="cuda",
        device="NVIDIA H200",
        median_ms=ms,
        floor_ms=ms * 0.6,
        bound="memory",
        speedups=speedups,
        evaluations=9,
        roofline_fraction=rng.uniform(0.2, 0.95),
        seconds=rng.uniform(1, 9),
    )


def bench_page(rows: list[BenchRow], *, mode: str = "strict", not_measured: tuple[str, ...] = ()) -> BenchPage:
    return BenchPage(
        title="KernelBench-like",
        mode=mode,
        source="engine",
        targets=("cuda", "gfx942"),
        complete=True,
        expected=len(rows),
        figures=figures(rows, kernelbench=mode == "kernelbench"),
        rows=tuple(rows),
        not_measured=not_measured,
        command="hipwright bench tasks --target cuda",
    )


def mixed(count: int = 24, text: str = "") -> list[BenchRow]:
    """Fast, slow and failed rows, and one that was not judged."""
    rng = random.Random(5)
    rows = [timed_row(n, None if n % 7 == 3 else 2 ** rng.uniform(-1.2, 2.4), text=text) for n in range(1, count + 1)]
    lost = BenchRow(
        key="lost",
        task="level1/99_lost",
        candidate="engine",
        status="unscorable",
        fault="device",
        message=text or "the GPU fell off the bus",
    )
    return [*rows, lost]
