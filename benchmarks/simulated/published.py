"""Times on AMD GPUs that others published, beside the cycle model's estimates of our programs for the same operation.

benchmarks/published/results.toml has each with its source. The kernels are not ours: an order is compared, and how far
off the estimates are. An answer of this machine's compiler, on no AMD GPU.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import ROOT, append_json, first_graph, task_host
from benchmarks.simulated.counted import CountedTask
from benchmarks.simulated.rank_figures import kendall
from hipwright import config
from hipwright.engine import write
from hipwright.errors import HipwrightError
from hipwright.measure.estimate import LAUNCH
from hipwright.measure.fit import spearman
from hipwright.measure.profiling.cycles import call_microseconds
from hipwright.sandbox import Zygote
from hipwright.targets import TARGETS
from hipwright.toolchain.cache import BuildCache

FOLDER = ROOT / "benchmarks/published"


def results() -> list[dict[str, Any]]:
    """The published results: task, target, us, share (1 without one), device, url, quoted."""
    return [{"share": 1.0, **one} for one in tomllib.loads((FOLDER / "results.toml").read_text())["result"]]


def report(out: Path | None) -> int:
    """Prints a line for each result and the rank correlation; 1 where one has no estimate. out: JSON lines."""
    rows, code = [], 0
    with task_host() as host:
        for one in results():
            try:
                one["estimate_us"] = round(estimated(one, host), 3)
            except (HipwrightError, RuntimeError) as error:
                print(f"{one['task']}: {str(error).splitlines()[0]}", file=sys.stderr)
                code = 1
                continue
            one["published_us"] = round(one["us"] * one["share"], 3)
            rows.append(one)
            append_json(out, one)
            print(line(one), flush=True)
    print(summary(rows), end="")
    return code if rows else 1


def estimated(one: dict[str, Any], host: Zygote) -> float:
    """ESTIMATE (SIMULATED): microseconds of the engine's first answer. Raises HipwrightError where there is none."""
    path, target = FOLDER / f"{one['task']}.py", f"{one['target']}@sim"
    architecture = TARGETS[target].architecture
    task = CountedTask(path, target, architecture, BuildCache(config.cache_dir()))
    counted = task.counted(write(first_graph(path, host), {}))
    if isinstance(counted, str):
        raise HipwrightError(f"no estimate: {counted}")
    kernels = {kernel.name: kernel for kernel in counted.kernels}
    return call_microseconds(counted.launches, kernels, architecture, LAUNCH)


def line(one: dict[str, Any]) -> str:
    """One result as text."""
    ratio = one["estimate_us"] / one["published_us"]
    return (
        f"{one['task']:30} {one['target']:7} published {one['published_us']:8.1f} us, ESTIMATE (SIMULATED) "
        f"{one['estimate_us']:8.1f} us, x{ratio:.2f}  {one['url']}"
    )


def summary(rows: list[dict[str, Any]]) -> str:
    """The rank correlations and the median factor."""
    if len(rows) < 2:
        return ""
    estimates, times = [one["estimate_us"] for one in rows], [one["published_us"] for one in rows]
    off = median(max(a / b, b / a) for a, b in zip(estimates, times, strict=True))
    both = f"rank correlation {spearman(estimates, times):.2f}, Kendall {kendall(estimates, times):.2f}"
    return f"{len(rows)} results: {both}; off by {off:.2f} times in the median\n"
