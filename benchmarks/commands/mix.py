"""Instruction mix of the kernels of the suite's programs by target, and whether it is that of earlier records.

    python -m benchmarks mix --out MIX.jsonl                                  every task's first program, as records
    python -m benchmarks mix --same-as benchmarks/records/mix-0.1.jsonl       exit code 1 if any kernel's mix differs

A line holds {"task", "targets": {target: [instruction counts of each kernel, in the order of the code object]}}. The
counts are those of `hipwright.records.KernelResources`: by class, with registers, LDS and scratch. Names of kernels are
left out: a change that only renames gives the same record. Needs no GPU; NVIDIA's mix is read from PTX and is left out
where NVRTC is not installed. Exit code 3 without a compiler.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.common import first_graph, require_files, task_host
from benchmarks.suite.tasks import SuiteTask, add_tasks, chosen_tasks
from hipwright import config
from hipwright.engine import write
from hipwright.errors import BadInput, ToolchainError
from hipwright.program import parse
from hipwright.records import Build, KernelResources, Program
from hipwright.toolchain.amd import offline
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.nvidia import nvrtc
from hipwright.toolchain.pool import CompilePool

AMD = ("gfx90a", "gfx942", "gfx950", "gfx1100")
NVIDIA = "sm_90"
FIELDS = ("vgpr", "agpr", "sgpr", "lds_bytes", "scratch_bytes", "vmem_bytes", "widest_vmem_bytes")


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--out", type=Path, help="write the records there")
    options.add_argument("--same-as", type=Path, metavar="FILE", help="compare with these records")
    add_tasks(options)
    options.add_argument("--jobs", type=int, default=2, help="compilers side by side")


def run(options: argparse.Namespace) -> int:
    """0 when all is written or equal, 1 when kernels differ."""
    known = read_mixes(options.same_as) if options.same_as else None
    return compare(records(chosen_tasks(options), options.jobs), known, options.out)


def records(tasks: Sequence[SuiteTask], jobs: int) -> Iterator[dict[str, Any]]:
    """One record a task, in the tasks' order."""
    cache = BuildCache(config.cache_dir())
    with task_host() as host, _nvidia(jobs) as pool:
        programs = [(task.name, write(first_graph(task.path, host))) for task in tasks]
        with ThreadPoolExecutor(jobs) as threads:
            found = threads.map(lambda pair: builds(pair[1], cache, pool), programs)
            for (name, _), built in zip(programs, found, strict=True):
                yield {"task": name, "targets": {b.target: [counts(k) for k in b.kernels] for b in built}}


def builds(program: Program, cache: BuildCache, pool: CompilePool | None) -> list[Build]:
    """The program's builds for AMD and, where there is a pool of compilers, NVIDIA. BadInput if one fails."""
    parsed = parse(program.text)
    defines = parsed.defines(program.knobs)
    made = [offline.build(parsed.hip, target, defines, cache=cache) for target in AMD]
    if pool is not None:
        made.append(nvrtc.build(parsed.hip, defines, arch=NVIDIA, pool=pool, cache=cache))
    for build in made:
        if not build.ok:
            raise BadInput(f"a program does not build for {build.target}: {build.log[-500:]}")
    return made


def counts(kernel: KernelResources) -> dict[str, int]:
    """What a kernel uses and executes, without its name."""
    return {**{field: getattr(kernel, field) for field in FIELDS}, **kernel.instructions}


def compare(found: Iterator[dict[str, Any]], known: dict[str, dict[str, Any]] | None, out: Path | None) -> int:
    """Writes the records, prints each program whose mix differs from the known one, and returns the exit code."""
    lines, other, kernels = [], 0, 0
    for record in found:
        lines.append(json.dumps(record, sort_keys=True))
        if known is not None:
            was = known.get(record["task"], {})
            for target, mixes in record["targets"].items():
                kernels += len(mixes)
                if target in was and was[target] != mixes:
                    other += 1
                    print(f"{record['task']} for {target}: {was[target]} then, {mixes} now")
    if out is not None:
        out.write_text("\n".join(lines) + "\n")
    if known is not None:
        print(f"{len(lines)} programs, {kernels} kernels by target: {other} programs by target with another mix")
    return 1 if other else 0


def read_mixes(path: Path) -> dict[str, dict[str, Any]]:
    """{task: {target: mixes}} of a file of records."""
    require_files([path], hint="--out writes one")
    return {line["task"]: line["targets"] for line in map(json.loads, path.read_text().splitlines())}


@contextmanager
def _nvidia(jobs: int) -> Iterator[CompilePool | None]:
    """A pool of NVRTC sessions, or None where NVRTC is not installed."""
    try:
        nvrtc.find()
    except ToolchainError as error:
        print(f"without {NVIDIA}: {error.message}", file=sys.stderr)
        yield None
        return
    with nvrtc.zygote() as zygote, CompilePool(zygote, jobs) as pool:
        yield pool
