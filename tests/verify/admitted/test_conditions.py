"""The comparisons of sizes that are found in plans and kernels, and how they come out."""

from __future__ import annotations

import pytest

from tests.verify.admitted.programs import outcomes, tracer

KERNELS = {
    "if (cols == 77) y[0] = 1;": {"cols == 77": {False}},
    "y[0] = cols > 100 ? 1.0f : 2.0f;": {"cols > 100": {True}},
    "int half = cols / 2; if (half < 200) y[0] = 1;": {"(cols / 2) < 200": {True}},
    "if (rows > 10 && cols > 400) y[0] = 1;": {"rows > 10": {True}, "cols > 400": {False}},
    "if (rows < 10 && cols > 400) y[0] = 1;": {"rows < 10": {False}},  # the second part is not reached
    "for (int j = threadIdx.x; j < cols; j += 256) y[0] += x[j];": {
        "threadIdx.x < cols": {True},
        "(threadIdx.x + 256) < cols": {True, False},
    },
    "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= rows) return; y[i] = 1;": {
        "((blockIdx.x * blockDim.x) + threadIdx.x) >= rows": {True, False}
    },
    "if (gridDim.x > 5) y[0] = 1;": {"gridDim.x > 5": {False}},
    "switch (cols) { case 300: y[0] = 1; break; case 5: y[0] = 2; }": {"cols == 300": {True}, "cols == 5": {False}},
    "if (cols % 4) y[0] = 1;": {"cols % 4": {False}},
    "int n = 0; while (n < cols) n += 7; if (n > 3) y[0] = n;": {"0 < cols": {True}},  # n is unknown after the loop
    "if (x[0] > cols) y[0] = 1;": {},  # decided by data
    "if (BLOCK > 64) y[0] = 1;": {},  # decided by a knob alone
    "if (cols > WIDE) y[0] = 1;": {"cols > 256": {True}},
    "y[0] = helper(cols);": {"cols > 99": {True}},
    "if (helper(cols) > 5) y[0] = 1;": {"cols > 99": {True}},  # it returns one of two numbers
    "if (twice(cols) > 5) y[0] = 1;": {"(2 * cols) > 5": {True}},
    "y[0] = pick<2>(rows);": {"rows > 2": {True}},
    "y[0] = IS_TALL(rows);": {"rows > 32": {True}},
}
HEAD = """#define WIDE 256
#define IS_TALL(n) ((n) > 32 ? 1 : 0)
__device__ int helper(int n) { if (n > 99) return 1; return 2; }
__device__ int twice(int n) { return 2 * n; }
template <int N> __device__ int pick(int n) { return n > N ? 1 : 0; }"""


@pytest.mark.parametrize("kernel", KERNELS)
def test_comparisons_of_a_kernel(kernel: str) -> None:
    """Locals, loops, macros, templates and device functions are seen through; data and knobs alone decide nothing."""
    assert outcomes(tracer(kernel=kernel, head=HEAD).follow(((33, 300),))) == KERNELS[kernel]


PLANS = {
    "cols = 1 if rows == 33 else cols": {"rows == 33": {True}},
    "cols = min(cols, 1024)": {"min(cols, 1024)": {True}},
    "cols = cols - (cols > 100)": {"cols > 100": {True}},
    "assert rows < 5 or cols % 4 == 0": {"rows < 5": {False}, "cols % 4 == 0": {True}, "cols % 4": {False}},
    "assert rows < 500, 'short'": {},  # the other side is declined
    "n = x.numel() // x.shape[-1]\n    cols = cols if n > 40 else 2": {"n > 40": {False}},
    "z = x.reshape(-1, 10)\n    cols = z.shape[0] if z.shape[0] > 900 else 3": {"z.shape[0] > 900": {True}},
    "cols = 1 if x.storage_offset() % 4 else cols": {},  # decided by the layout
    "for k in range(2):\n        cols = cols if rows > k * 100 else 1": {"rows > k * 100": {True, False}},
    "if x.is_contiguous():\n        cols = 2\n    cols = cols if cols > 9 else 1": {"cols > 9": {True, False}},
}


@pytest.mark.parametrize("plan", PLANS)
def test_comparisons_of_a_plan(plan: str) -> None:
    """Branches, guards with alternatives, min and max; where a layout decides, both ways are followed."""
    assert outcomes(tracer(plan=plan).follow(((33, 300),))) == PLANS[plan]


def test_a_guard_declines_shapes() -> None:
    """The shapes that a guard declines have no sides."""
    guarded = tracer(plan="assert rows * cols < 2**20, 'the kernels count in int'")
    assert not guarded.follow(((33, 300),)).refused
    refused = guarded.follow(((1024, 1024),))
    assert refused.refused and not refused.sides


@pytest.mark.parametrize(
    "kernel",
    [
        "if (",
        "}}}}",
        "for (;;",
        "x<y<z>>(",
        "((((((((" * 40,
        "a = b ? c : d ? e :;",
        "switch (cols) { case",
        "if (n) if",
    ],
)
def test_text_that_is_no_statement(kernel: str) -> None:
    """Text that the walk does not understand is passed over."""
    tracer(kernel=kernel).follow(((33, 300),))
