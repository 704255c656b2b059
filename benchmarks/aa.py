"""A/A: a kernel against itself, in two processes of their own, as candidates are timed. Needs a GPU.

    python benchmarks/aa.py [--pairs N] [--target cuda]

From a few microseconds to a millisecond a call. Prints how many 95 % intervals hold 1.00, and how far medians are off.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from pathlib import Path

from hipwright.evaluate.baselines import Kept
from hipwright.measure.bench import time_pairs
from hipwright.measure.roofline import rotation
from hipwright.measure.settings import FULL
from hipwright.sandbox import GpuAccess, Zygote
from hipwright.task import open_task
from hipwright.verify.reference import open_reference

SIZES = (1 << 18, 1 << 22, 1 << 24, 1 << 28)
TASK = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x) * 1.5
def get_inputs():
    return [torch.randn({0})]
"""


def main() -> None:
    """Time every size, print a line each and the sum."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pairs", type=int, default=200)
    options.add_argument("--target", default="cuda", choices=("cuda", "rocm"))
    chosen = options.parse_args()
    inside = total = 0
    worst = 0.0
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tasks = stack.enter_context(Zygote(("torch", "hipwright.task.warm"), name="task host"))
        access = GpuAccess(chosen.target, 0)
        hosts = stack.enter_context(Zygote(("torch", "hipwright.task.device_host"), name="device host", gpu=access))
        for size in SIZES:
            path = folder / f"gelu_{size}.py"
            path.write_text(TASK.format(size))
            with open_task(path, tasks) as handle, contextlib.ExitStack() as of:
                refs = [of.enter_context(open_reference(handle, hosts, "cuda:0")) for _ in range(2)]
                state = handle.init_state(0)
                slots = rotation(8 * size, int(refs[0].info["llc_bytes"]), int(refs[0].info["memory_bytes"]) // 4)
                sides = [Kept(ref, "eager", "given", state, 1, slots) for ref in refs]
                found, start = [], time.monotonic()
                for _ in range(chosen.pairs // len(SIZES)):
                    result = time_pairs(sides[0], sides[1:], settings=FULL)
                    sides.reverse()
                    if result.timing is not None:
                        found.append((result.timing.median_ms, result.timing.versus["eager"], result.verdict))
                spent = time.monotonic() - start
            ones = sum(v.interval[0] <= 1.0 <= v.interval[1] for _, v, _ in found)
            off = max(abs(v.speedup - 1) for _, v, _ in found)
            refused = sum(verdict is not None for _, _, verdict in found)
            print(f"{found[0][0] * 1e3:8.2f} us a call: {ones} of {len(found)} hold 1.00, worst median off by "
                  f"{off:.2%}, refused {refused}, {spent / len(found):.2f} s each", flush=True)  # fmt: skip
            inside, total, worst = inside + ones, total + len(found), max(worst, off)
    print(f"{inside} of {total} intervals hold 1.00; worst |median - 1| {worst:.2%}")


if __name__ == "__main__":
    main()
