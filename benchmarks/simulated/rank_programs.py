"""The variants of a task's program that the cycle model orders, and its estimates of them. Needs no GPU."""

from __future__ import annotations

import json
import lzma
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.common import ROOT, append_json, first_graph, json_rows, task_host
from benchmarks.simulated.counted import CountedTask
from benchmarks.timing.variants import variant_programs, varied_settings
from hipwright import config
from hipwright.capture.graph import Graph
from hipwright.errors import HipwrightError
from hipwright.measure.estimate import LAUNCH
from hipwright.measure.profiling.cycles import Counts, call_microseconds
from hipwright.records import Program
from hipwright.targets import Architecture
from hipwright.targets.base import KIB
from hipwright.targets.cuda import SM_90
from hipwright.toolchain.cache import BuildCache

TARGET = "gfx1100@sim"
SEED = 5
HOPPER: Architecture = replace(SM_90, line_bytes=32, l1_bytes=128 * KIB)
"""Memory moves in sectors of 32 bytes there; half of an SM's memory as L1, the rest for LDS (tuning guide)."""


def count(tasks: Sequence[Path], out: Path, variants: int, end: float) -> int:
    """Appends a row for each task; 1 where one failed or time ran out. Progress goes to stderr."""
    cache, code = BuildCache(config.cache_dir()), 0
    with task_host() as host:
        for number, path in enumerate(tasks):
            if time.monotonic() > end:
                print(f"the time is over: {len(tasks) - number} tasks left", file=sys.stderr)
                return 1
            started = time.monotonic()
            try:
                programs = chosen_programs(first_graph(path, host), variants)
                row = _row(path, programs, CountedTask(path, TARGET, HOPPER, cache), variants)
            except (HipwrightError, RuntimeError) as error:
                print(f"{path}: {str(error).splitlines()[0]}", file=sys.stderr)
                code = 1
                continue
            keep(out, row)
            seconds = time.monotonic() - started
            print(f"{path}: {len(row['programs'])} of {len(programs)} counted, {seconds:.0f} s", file=sys.stderr)
    return code


def chosen_programs(graph: Graph, variants: int) -> dict[str, Program]:
    """{name: program} of the default and so many other programs, drawn from the engine's space: values of
    one choice at a time, each choice's in turn."""
    settings = varied_settings(graph, {}, {})
    by_key: dict[str, list[str]] = {}
    for name, chosen in settings.items():
        by_key.setdefault(next(iter(chosen), ""), []).append(name)
    rng, order = random.Random(SEED), []
    for names in by_key.values():
        rng.shuffle(names)
    while any(by_key.values()):
        order += [names.pop() for names in by_key.values() if names]
    programs = variant_programs(graph, {name: settings[name] for name in order}, {})
    return dict(list(programs.items())[: 3 * variants])


def _row(path: Path, programs: Mapping[str, Program], task: CountedTask, variants: int) -> dict[str, Any]:
    """{"task", "programs": [{"name", "text", "knobs", "simulated_us", "units"}], "left_out": {name: why}}."""
    found: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for name, program in programs.items():
        if len(found) > variants:
            break
        try:
            counted = task.counted(program)
        except HipwrightError as error:
            counted = error.message[:160]
        if isinstance(counted, str):
            left_out[name] = counted
            continue
        kernels = {kernel.name: kernel for kernel in counted.kernels}
        us = call_microseconds(counted.launches, kernels, HOPPER, LAUNCH)
        units = [_units(launch, kernels[launch["kernel"]]) for launch in counted.launches]
        one = {"name": name, "text": program.text, "knobs": dict(program.knobs)}
        found.append({**one, "simulated_us": round(us, 3), "units": units})
    return {"task": task_name(path), "programs": found, "left_out": left_out}


def task_name(path: Path) -> str:
    """A task's name in the records: its path from the repository's root, where it lies below it."""
    whole = path.resolve()
    return str(whole.relative_to(ROOT)) if whole.is_relative_to(ROOT) else str(whole)


def keep(path: Path, row: Mapping[str, Any]) -> None:
    """Adds a row to a file of JSON lines; one named .xz is compressed, as a task's programs differ by little."""
    if path.suffix != ".xz":
        append_json(path, row)
        return
    lines = [json.dumps(one) for one in [*(json_rows(path) if path.is_file() else []), row]]
    part = path.with_suffix(".part")
    part.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode(), preset=9))
    part.replace(path)


def _units(launch: Mapping[str, Any], kernel: Any) -> dict[str, float]:
    """Microseconds of each unit of a launch by the model."""
    registers, lds = float(kernel.vgpr + kernel.agpr), float(kernel.lds_bytes + launch["lds_bytes"])
    busy = Counts(launch, HOPPER, registers, lds).busy
    return {name: round(cycles / HOPPER.clock_hz * 1e6, 2) for name, cycles in busy.items() if cycles}
