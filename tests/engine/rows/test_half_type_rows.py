"""Half-type results: 16-byte stores, fast exponentials, one division per row; a thread per column if there are many."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import write
from hipwright.program import parse
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.harness import Op, captured, check, compare, reference, run
from tests.engine.template_builds import program_builds


def twin(program: Any) -> str:
    """The PTX of the static-shape variant of the last kernel."""
    parsed = parse(program.text)
    knobs = "".join(f"#define {name} {value}\n" for name, value in sorted(parsed.defines(program.knobs).items()))
    done, log, ptx = nvrtc.listing(parsed.hip, knobs, "sm_90", warm.compilers())
    assert done, log
    return str(next(part for part in ptx.split(".entry")[1:] if part.lstrip().partition("(")[0].endswith("_exact")))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_softmax_of_half_types(dtype: torch.dtype) -> None:
    """64 elements are two vectors of four lanes each: two 16-byte stores, none of 4 bytes, 16 fast exponentials."""
    ptx = twin(write(captured(Op(lambda x: x.softmax(-1)), [torch.empty(1 << 16, 64, dtype=dtype)])))
    assert ptx.count("st.global.v4") == 2
    assert "st.global.u32" not in ptx and "st.global.b32" not in ptx
    assert ptx.count("ex2.approx.ftz.f32") == 16
    assert "ex2.approx.f32" not in ptx


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_stores_of_unaligned_rows(dtype: torch.dtype) -> None:
    """Rows that vectors fill, and unaligned rows."""
    x = torch.randn(70, 72, generator=torch.Generator().manual_seed(5)).to(dtype)
    x[3, 5], x[4] = float("nan"), float("-inf")
    check(Op(lambda t: t.float().softmax(-1).to(t.dtype)), [x], other=[x[:, :61].contiguous()])


@pytest.mark.parametrize(
    ("width", "dtype", "lanes"),
    [
        (320, torch.float16, 8),
        (640, torch.bfloat16, 16),
        (192, torch.float16, 8),
        (512, torch.float16, 32),
        (448, torch.float16, 32),
        (160, torch.float32, 8),
        (320, torch.float32, 16),
    ],
)
def test_lanes_without_idle_vectors(width: int, dtype: torch.dtype, lanes: int) -> None:
    """A norm's row goes to as many lanes as its vectors fill, so that none is tested; few rows are correct too."""
    model = torch.nn.LayerNorm(width, dtype=dtype)
    program = write(captured(model, [torch.empty(1, width, dtype=dtype).expand(1 << 18, width)]))
    assert parse(program.text).defines(program.knobs)["LANES"] == lanes
    inputs = [torch.randn(37, width, generator=torch.Generator().manual_seed(width)).to(dtype)]
    expected, native, _ = reference(model, inputs)
    compare(run(program, model, inputs)[0], expected, native)


def weighted(x: torch.Tensor, weight: torch.Tensor) -> Any:
    return (x * weight[:, :, None]).sum(1) / weight.sum(1, keepdim=True)


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_thread_sums_a_column(dtype: torch.dtype, wave: int) -> None:
    """Captured where columns fill a device, the program shares no column between threads; it is correct on few, too."""
    model = Op(weighted)
    program = write(captured(model, [torch.empty(4096, 77, 259, dtype=dtype), torch.empty(4096, 77, dtype=dtype)]))
    defines = parse(program.text).defines(program.knobs)
    assert defines["COLUMNS"] == 64 and 64 in (defines["BLOCK"], defines.get("BLOCK_2"))
    for rows in (5, 1):
        x = torch.randn(rows, 77, 61, generator=torch.Generator().manual_seed(rows)).to(dtype)
        inputs = [x, torch.rand(rows, 77, generator=torch.Generator().manual_seed(2)).to(dtype) + 0.25]
        expected, native, _ = reference(model, inputs)
        got, _ = run(program, model, inputs, wave=wave)
        compare(got, expected, native)


def test_columns_build_without_lds() -> None:
    program = write(captured(Op(weighted), [torch.empty(4096, 77, 257), torch.empty(4096, 77)]))
    build = program_builds(program, lambda target: 4)
    (kernel,) = (k for k in build.kernels if k.name == "sum_mul_div_exact")
    assert kernel.lds_bytes == 0 and kernel.vgpr <= 32 and kernel.scratch_bytes == 0


def test_few_columns_are_shared() -> None:
    """One thread per column would leave most of a device idle."""
    program = write(captured(Op(weighted), [torch.empty(64, 77, 257), torch.empty(64, 77)]))
    assert parse(program.text).defines(program.knobs)["COLUMNS"] == 32


def cooled(x: torch.Tensor, temperature: torch.Tensor) -> Any:
    return (x.float() / temperature).softmax(-1).to(x.dtype)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(70, 61), (9, 5003)], ids=str)
def test_one_division_per_row(shape: tuple[int, int], dtype: torch.dtype, wave: int) -> None:
    """Also by zero, infinity, a negative, and numbers too small and too large for a plain reciprocal."""
    drawn = torch.Generator().manual_seed(shape[1])
    x, by = torch.randn(*shape, generator=drawn).to(dtype), torch.rand(shape[0], 1, generator=drawn) + 0.5
    by[:7, 0] = torch.tensor([0.0, float("inf"), -0.7, 1e-39, 3e38, float("nan"), -1e-40])
    x[3], x[6] = 0, 0
    text = check(Op(cooled), [x, by], wave=wave, other=[x[:, :24].contiguous(), by])
    assert "saturated_reciprocal(x_1" in text


def test_float_results_are_divided() -> None:
    text = write(captured(Op(lambda x, t: (x / t).softmax(-1)), [torch.empty(64, 61), torch.empty(64, 1)])).text
    assert "saturated_reciprocal(" not in text


def test_one_division_per_row_in_ptx() -> None:
    model = Op(cooled)
    inputs = [torch.empty(16384, 10007, dtype=torch.bfloat16), torch.empty(16384, 1)]
    ptx = twin(write(captured(model, inputs)))
    assert ptx.count("div.rn.f32") + ptx.count("rcp.rn.f32") == 2  # the temperature's and the sum's


def test_activations_of_rows_are_fast() -> None:
    """What is stored along the row; the sums that it follows from stay exact."""
    model = Op(
        lambda x: torch.nn.functional.selu(torch.sigmoid(x - torch.nn.functional.silu(x).mean(-1, keepdim=True)))
    )
    text = check(model, [torch.randn(9, 3000).half()])
    assert "selu_fast(" in text and "sigmoid_fast(" in text and " silu(" in text
