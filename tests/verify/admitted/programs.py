"""Small programs over one matrix, with a plan or a kernel of the test's own."""

from __future__ import annotations

import numpy as np

from hipwright.program import parse
from hipwright.task.sizes import SharedSize
from hipwright.tensors import HostTensor
from hipwright.verify.admitted.plan_tracer import PlanTracer
from hipwright.verify.admitted.size_space import SizeSpace
from hipwright.verify.admitted.trace import ShapeTrace

GIVEN = ((33, 300),)
SPACE = SizeSpace(GIVEN, (SharedSize(300, ((0, 1),)), SharedSize(33, ((0, 0),))))

TEXT = """HIP = r'''
#include <hip/hip_runtime.h>
{head}
extern "C" __global__ void work(const float* x, float* y, int rows, int cols) {{
    {kernel}
}}
'''

BLOCK = knob(64, choices=[64, 128])


def forward(self, x):
    rows = x.shape[0]
    cols = x.shape[1]
    y = torch.empty((rows,), dtype=x.dtype)
    {plan}
    work[cdiv(rows, BLOCK), BLOCK](x, y, rows, cols)
    return y
"""


def text(plan: str = "y = y.contiguous()", kernel: str = "y[0] = x[0];", head: str = "") -> str:
    """A program with these statements."""
    return TEXT.format(plan=plan, kernel=kernel, head=head)


def tracer(plan: str = "y = y.contiguous()", kernel: str = "y[0] = x[0];", head: str = "") -> PlanTracer:
    """The tracer of such a program."""
    state = {"params": {}, "buffers": {}, "attrs": {}, "modules": {}}
    inputs = [HostTensor.of(np.zeros((2, 3), np.float32))]
    return PlanTracer(parse(text(plan, kernel, head)), {}, inputs, state)


def outcomes(trace: ShapeTrace) -> dict[str, set[bool]]:
    """The outcomes of each comparison by its text."""
    found: dict[str, set[bool]] = {}
    for condition, outcome in trace.sides:
        found.setdefault(condition.text, set()).add(outcome)
    return found
