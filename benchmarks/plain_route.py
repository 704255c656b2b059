"""What the usual route costs: the same kernels as a program, and as ModelNew files by our fast path, with lean and with
torch's headers. The fast path converts a file to a program where that is possible, else takes the lean headers.

    python benchmarks/plain_route.py PROGRAMS.jsonl [--count N] [--arch sm_90]

PROGRAMS.jsonl is what benchmarks/programs.py writes. Builds are cold and one after the other. Needs nvcc, no GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from hipwright.errors import ProgramError
from hipwright.program import parse
from hipwright.program.convert.modelnew import from_modelnew
from hipwright.program.modelnew import export as modelnew
from hipwright.program.modelnew.build import prepare
from hipwright.records import Program
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.nvidia import nvrtc
from hipwright.toolchain.pool import CompilePool

ROOT = Path(__file__).parents[1]
WAYS = ("program", "fast", "lean", "real")


def main() -> None:
    """Build and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("programs", type=Path)
    options.add_argument("--count", type=int, default=3)
    options.add_argument("--arch", default="sm_90")
    chosen = options.parse_args()
    rows = [json.loads(line) for line in chosen.programs.read_text().splitlines()]
    rows = rows[:: max(1, len(rows) // chosen.count)][: chosen.count]
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder, nvrtc.zygote() as zygote, CompilePool(zygote, 1) as pool:
        cache = BuildCache(folder)
        nvrtc.build(nvrtc_trial(), {}, arch=chosen.arch, pool=pool, cache=cache)  # the session's own start
        for row in rows:
            program = Program(text=row["text"], knobs=row["knobs"])
            parsed = parse(program.text)
            text = modelnew.export(program, parsed, (ROOT / row["task"]).read_text())
            defines = parsed.defines(program.knobs)
            found["program"].append(nvrtc.build(parsed.hip, defines, arch=chosen.arch, pool=pool, cache=cache).seconds)
            with tempfile.TemporaryDirectory() as fresh:
                found["fast"].append(fast(text, (ROOT / row["task"]).read_text(), chosen.arch, pool, BuildCache(fresh)))
            for way in WAYS[2:]:
                found[way].append(prepare(text, target="cuda", arch=chosen.arch, cache=cache, ways=(way,)).seconds)
            print(row["task"], ", ".join(f"{way} {found[way][-1]:.2f} s" for way in WAYS), flush=True)
    print("median", ", ".join(f"{way} {statistics.median(found[way]):.2f} s" for way in WAYS))


def fast(text: str, task: str, arch: str, pool: CompilePool, cache: BuildCache) -> float:
    """Seconds from the file to something that can be launched."""
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


def nvrtc_trial() -> str:
    """A source that costs nothing."""
    return '#include <hip/hip_runtime.h>\nextern "C" __global__ void trial(float* x) { x[0] = 1.0f; }\n'


if __name__ == "__main__":
    main()
