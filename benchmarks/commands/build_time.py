"""Seconds of a build: the same kernels as a program, and as ModelNew files with the lean and with torch's headers.

    python -m benchmarks build-time PROGRAMS.jsonl [--count N] [--arch sm_90]

PROGRAMS.jsonl is what `python -m benchmarks programs` writes. The ways: "program"; "fast", by which hipwright judges a
ModelNew file (converted to a program where that is possible, else built with the lean headers); "lean" and "real", the
file with lean and with torch's own headers. Builds are cold and one after the other. Needs nvcc, no GPU.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.common import ROOT, read_programs
from hipwright.errors import ProgramError
from hipwright.program import parse
from hipwright.program.convert.modelnew import from_modelnew
from hipwright.program.modelnew import export as modelnew
from hipwright.program.modelnew.build import prepare
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.nvidia import nvrtc
from hipwright.toolchain.pool import CompilePool

TRIAL = '#include <hip/hip_runtime.h>\nextern "C" __global__ void trial(float* x) { x[0] = 1.0f; }\n'
WAYS = ("program", "fast", "lean", "real")


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("programs", type=Path)
    options.add_argument("--count", type=int, default=3)
    options.add_argument("--arch", default="sm_90")


def run(options: argparse.Namespace) -> int:
    """Builds, and prints the seconds of each program and their medians."""
    rows = [(task, program) for task, programs in read_programs(options.programs).items() for program in programs]
    rows = rows[:: max(1, len(rows) // options.count)][: options.count]
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder, nvrtc.zygote() as zygote, CompilePool(zygote, 1) as pool:
        cache = BuildCache(folder)
        nvrtc.build(TRIAL, {}, arch=options.arch, pool=pool, cache=cache)  # the compiler's own start
        for task, program in rows:
            parsed, source = parse(program.text), (ROOT / task).read_text()
            text = modelnew.export(program, parsed, source)
            defines = parsed.defines(program.knobs)
            found["program"].append(nvrtc.build(parsed.hip, defines, arch=options.arch, pool=pool, cache=cache).seconds)
            with tempfile.TemporaryDirectory() as fresh:
                found["fast"].append(fast_seconds(text, source, options.arch, pool, BuildCache(fresh)))
            for way in WAYS[2:]:
                found[way].append(prepare(text, target="cuda", arch=options.arch, cache=cache, ways=(way,)).seconds)
            print(task, ", ".join(f"{way} {found[way][-1]:.2f} s" for way in WAYS), flush=True)
    print("median", ", ".join(f"{way} {statistics.median(found[way]):.2f} s" for way in WAYS))
    return 0


def fast_seconds(text: str, task: str, arch: str, pool: CompilePool, cache: BuildCache) -> float:
    """Seconds from a ModelNew file to code that can be launched, as hipwright judges it."""
    start = time.perf_counter()
    try:
        program = from_modelnew(text, task)
        parsed = parse(program.text)
        built = nvrtc.build(parsed.hip, parsed.defines(program.knobs), arch=arch, pool=pool, cache=cache).ok
    except ProgramError:
        built = False
    if not built:
        prepare(text, target="cuda", arch=arch, cache=cache)
    return time.perf_counter() - start
