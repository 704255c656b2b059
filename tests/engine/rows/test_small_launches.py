"""Kernels dominated by their launch: enough blocks, few waits, one round of the device."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hipwright.engine import write
from hipwright.toolchain.device_headers import inlined
from tests.engine.harness import Op, captured, compare, reference, run
from tests.engine.template_builds import builds


def checked(model: torch.nn.Module, inputs: list[torch.Tensor], shown: list[torch.Tensor] | None = None) -> str:
    """Runs a program for `shown` (or the inputs) on the inputs; returns its text."""
    program = write(captured(model, shown or inputs))
    exact, native, _ = reference(model, inputs)
    compare(run(program, model, inputs)[0], exact, native)
    return program.text


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("rows", "depth"), [(300, 256), (1024, 1024), (37, 72)])
def test_the_epilogue_of_a_short_product_is_prefetched(dtype: torch.dtype, rows: int, depth: int) -> None:
    model = Op(lambda w, x, b, r: torch.tanh(x @ w.t() + b) + r)
    inputs = [torch.randn(*s).to(dtype) * 0.3 for s in ((rows, depth), (3, depth), (rows,), (3, rows))]
    text = checked(model, inputs)
    assert "_early" in text


def test_operand_and_epilogue_load_the_same_tensor() -> None:
    model = Op(lambda w, x, s: (w.float() * s[:, None]) @ x + s)
    inputs = [torch.randint(-9, 9, (300, 256), dtype=torch.int8), torch.randn(256), torch.rand(300) + 0.5]
    checked(model, inputs)


def test_long_products_prefetch_nothing() -> None:
    inputs = [torch.randn(64, 32768), torch.randn(32768), torch.randn(64)]
    assert "_early" not in write(captured(Op(lambda w, x, b: w @ x + b), inputs)).text


def test_few_rows_have_a_thread_per_vector() -> None:
    model = Op(lambda t, w, p: nn.functional.embedding(t, w) + p[: t.shape[1]])
    inputs = [torch.randint(0, 50, (4, 128)), torch.randn(50, 256), torch.randn(128, 256)]
    text = checked(model, inputs)
    assert "ROW_BLOCK = knob(64" in text
    assert "ROW_ITEMS = knob(1" in text


def test_short_rows_take_one_round_of_the_device() -> None:
    model = Op(lambda x: nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))
    text = checked(model, [torch.randn(3, 5, 7, 7)], [torch.randn(32, 512, 7, 7)])
    assert "LANES = knob(16" in text


@pytest.mark.parametrize("largest", [True, False])
def test_indices_of_rows_with_nan_and_infinity(*, largest: bool) -> None:
    model = Op(lambda x: x.max(-1) if largest else x.min(-1))
    x = torch.randn(9, 1000)
    x[0], x[1], x[2] = float("-inf"), float("inf"), float("nan")
    x[3, [700, 900]] = float("nan")
    x[4], x[4, 500], x[5] = 0.0, -0.0, 3.0
    x[6, [999, 20]] = 1e30 if largest else -1e30
    text = checked(model, [x])
    assert "block_reduce<ROW_BLOCK>(" in text and "IndexedValue<float, int>" in text
    assert "__reduce_max_sync" in inlined(text)  # which is only built here: no processor has it


def test_small_kernels_build_everywhere() -> None:
    builds(Op(lambda x: x.max(-1)), [torch.randn(128, 1000)])
    builds(Op(lambda x: x.argmin(-1)), [torch.randn(128, 1000)])
    builds(Op(lambda w, x, b: torch.tanh(w @ x + b)), [torch.randn(1024, 1024), torch.randn(1024), torch.randn(1024)])
