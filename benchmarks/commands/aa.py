"""A/A: a kernel against itself in two processes, timed as candidates are; how many intervals hold 1.00. Needs a GPU.

    python -m benchmarks aa [--pairs N] [--target cuda]
    python -m benchmarks aa --candidate [--pairs N]     programs that call the task's own operator, against eager

Calls take from a few microseconds to a millisecond. Prints how many 95 % intervals hold 1.00, and how far medians are
off. --candidate asks whether a candidate's process is as fast as a baseline's: its inputs lie between red zones, and it
has another stream.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from pathlib import Path

from benchmarks.common import add_target, task_host
from hipwright.api.workbench import open_workbench
from hipwright.evaluation.gpu.baselines import WarmBaseline
from hipwright.events import silent
from hipwright.measure.paired_timing import time_pairs
from hipwright.measure.roofline import rotation
from hipwright.measure.settings import FULL
from hipwright.program import parse
from hipwright.records import Program, Verdict, Versus
from hipwright.sandbox import GpuAccess, Zygote
from hipwright.targets import TARGETS
from hipwright.task import open_task
from hipwright.verify.gpu.connection import DEVICE_HOST_WARM
from hipwright.verify.gpu.reference import open_reference

SIZES = (1 << 18, 1 << 22, 1 << 24, 1 << 28)
TASK = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x) * 1.5
def get_inputs():
    return [torch.randn({0})]
"""
OPERATORS = {
    "matmul 2048": ("torch.matmul(x, y)", "torch.randn(2048, 2048), torch.randn(2048, 2048)"),
    "matmul deep": ("torch.matmul(x, y)", "torch.randn(256, 65536), torch.randn(65536, 256)"),
    "bmm bf16": ("torch.bmm(x, y)", "torch.randn(64, 512, 512).bfloat16(), torch.randn(64, 512, 512).bfloat16()"),
    "add large": ("torch.add(x, y)", "torch.randn(1 << 26), torch.randn(1 << 26)"),
    "20 small adds": (" + ".join(["x", *["y"] * 20]), "torch.randn(1 << 14), torch.randn(1 << 14)"),
    "add small": ("torch.add(x, y)", "torch.randn(1 << 18), torch.randn(1 << 18)"),
}
"""{name: (the call that task and program both make, its inputs)}."""
LIBRARY = "import torch\nHIP = r''''''\n\n\ndef forward(self, x, y):\n    return {0}\n"
OPERATOR = """import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return {0}
def get_inputs():
    return [{1}]
"""


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--pairs", type=int, default=200)
    add_target(options)
    options.add_argument("--candidate", action="store_true", help="programs against eager")


def run(options: argparse.Namespace) -> int:
    """Prints a line for each size or operator, and the sum over the sizes."""
    if options.candidate:
        time_candidates(max(1, options.pairs // len(OPERATORS)), options.target)
    else:
        time_sizes(options.pairs // len(SIZES), options.target)
    return 0


def time_candidates(pairs: int, target: str) -> None:
    """Times a program that calls one operator against eager, for each operator; prints a line each."""
    with tempfile.TemporaryDirectory() as folder:
        for name, (call, inputs) in OPERATORS.items():
            path = Path(folder) / f"{name.replace(' ', '_')}.py"
            path.write_text(OPERATOR.format(call, inputs))
            program = Program(text=LIBRARY.format(call))
            with open_workbench(path, (target,), seed=None, unsafe=False, listener=silent) as bench:
                gpu, parsed = bench.evaluator.gpus[target], parse(program.text)
                build = gpu.gpu.build(parsed.hip, {})
                results = [gpu.time(program, build, gate="full", again=False) for _ in range(pairs)]
            found = [r.timing.versus["eager"] for r in results if r.timing is not None]
            held = sum(v.interval[0] <= 1.0 <= v.interval[1] for v in found)
            each = ", ".join(f"{v.speedup:.3f}" for v in found)
            graphs = sum(r.timing is not None and r.timing.policy == "graph" for r in results)
            refused = len(results) - len(found)
            print(
                f"{name}: {held} of {len(found)} hold 1.00, refused {refused}, from graphs {graphs}; {each}", flush=True
            )


def time_sizes(pairs: int, target: str) -> None:
    """Times a GELU against itself in `pairs` comparisons of each size; prints a line each and the sum."""
    inside = total = 0
    worst = 0.0
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tasks = stack.enter_context(task_host())
        access = GpuAccess(TARGETS.gpu(target), 0)
        hosts = stack.enter_context(Zygote(("torch", DEVICE_HOST_WARM), name="device host", gpu=access))
        for size in SIZES:
            path = folder / f"gelu_{size}.py"
            path.write_text(TASK.format(size))
            start = time.monotonic()
            found = compare_with_itself(path, size, pairs, tasks, hosts)
            spent = time.monotonic() - start
            ones = sum(v.interval[0] <= 1.0 <= v.interval[1] for _, v, _ in found)
            off = max(abs(v.speedup - 1) for _, v, _ in found)
            refused = sum(verdict is not None for _, _, verdict in found)
            print(
                f"{found[0][0] * 1e3:8.2f} us a call: {ones} of {len(found)} hold 1.00, worst median off by "
                f"{off:.2%}, refused {refused}, {spent / len(found):.2f} s each",
                flush=True,
            )
            inside, total, worst = inside + ones, total + len(found), max(worst, off)
    print(f"{inside} of {total} intervals hold 1.00; worst |median - 1| {worst:.2%}")


def compare_with_itself(
    path: Path, size: int, pairs: int, tasks: Zygote, hosts: Zygote
) -> list[tuple[float, Versus, Verdict | None]]:
    """(milliseconds a call, comparison, verdict of the clocks) of eager in two processes, which change sides."""
    found = []
    with open_task(path, tasks) as handle, contextlib.ExitStack() as stack:
        refs = [stack.enter_context(open_reference(handle, hosts, "cuda:0")) for _ in range(2)]
        state = handle.init_state(0)
        slots = rotation(8 * size, int(refs[0].info["llc_bytes"]), int(refs[0].info["memory_bytes"]) // 4)
        sides = [WarmBaseline(ref, "eager", "given", state, 1, slots) for ref in refs]
        for _ in range(pairs):
            result = time_pairs(sides[0], sides[1:], settings=FULL)
            sides.reverse()
            if result.timing is not None:
                found.append((result.timing.median_ms, result.timing.versus["eager"], result.verdict))
    return found
