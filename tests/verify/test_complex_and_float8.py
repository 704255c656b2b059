"""Tensors of dtypes that no kernel computes: complex numbers and 8-bit floats, as library operators and as results."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hipwright.api.task_engine import task_engine
from hipwright.engine import write
from hipwright.engine.knobs import GIVEN_UP, PLAIN_PLAN
from hipwright.errors import TaskError
from hipwright.events import silent
from hipwright.float8 import FLOAT8, from_float8, to_float8
from hipwright.machine import Machine
from hipwright.tensors import HostTensor
from hipwright.torchio import from_torch, to_torch
from hipwright.verify.inputs import make, nudge, observe
from tests.verify.written_tasks import judged, task

PLAN = "HIP = r''''''\n\n\ndef forward(self, x):\n    return {}\n"
COMPLEX = "torch.randn(12, 33, dtype=torch.complex64)"
REAL = "torch.randn(12, 32)"

FAMILY = {
    "rotation": (
        "a = torch.outer(torch.arange(24.0), torch.rand(16))\n"
        "        self.register_buffer('c', torch.polar(torch.ones_like(a), a))",
        "z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * self.c[: x.shape[1]]\n"
        "        return torch.tanh(torch.view_as_real(z).flatten(2)) + x",
        "torch.randn(3, 24, 32)",
    ),
    "complex in and out": (
        "self.c = nn.Parameter(torch.randn(33, dtype=torch.complex64))",
        "return x * self.c + 1",
        COMPLEX,
    ),
    "double": ("", "return (x * x.conj()).sum(-1)", "torch.randn(12, 33, dtype=torch.complex128)"),
    "spectrum": (
        "",
        "y = torch.fft.rfft(torch.relu(x))\n        return torch.fft.irfft(y * y.abs().sigmoid(), n=32)",
        REAL,
    ),
    "spectrum out": ("", "return torch.fft.fft2(torch.tanh(x))", "torch.randn(3, 8, 12)"),
    "windows": (
        "",
        "return torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True).abs()",
        "torch.randn(3, 128)",
    ),
    "product": (
        "self.w = nn.Parameter(torch.randn(33, 20, dtype=torch.complex64))",
        "return torch.relu((x @ self.w).real)",
        COMPLEX,
    ),
    "a complex number": ("", "return torch.exp(1j * x) * (2 + 3j)", REAL),
    "an input handed on": ("", "return x, x.abs() * 2", COMPLEX),
    "complex state": (
        "self.register_buffer('s', torch.zeros(33, dtype=torch.complex64))",
        "self.s.mul_(0.5).add_(x.mean(0))\n        return (x * self.s).abs()",
        COMPLEX,
    ),
    "quantised in groups": (
        "",
        "g = x.view(x.shape[0], -1, 16)\n        s = g.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448.0\n"
        "        return (g / s).to(torch.float8_e4m3fn).view(x.shape[0], -1), s.squeeze(-1)",
        "torch.randn(16, 64)",
    ),
    "weights of 8 bits": (
        "self.register_buffer('w', torch.randn(20, 32).to(torch.float8_e5m2))",
        "return torch.relu(F.linear(x, self.w.to(x.dtype) * 0.5))",
        REAL,
    ),
    "state of 8 bits": (
        "self.register_buffer('k', torch.zeros(12, 32).to(torch.float8_e5m2))",
        "self.k.copy_((x * 0.5).to(torch.float8_e5m2))\n        return x + self.k.float()",
        REAL,
    ),
} | {
    f"{name} {way}": ("", body.format(name), inputs.format(name))
    for name in FLOAT8
    for way, body, inputs in (
        ("out", "return (torch.tanh(x) * 3).to(torch.{})", REAL),
        ("in", "return torch.relu(x.float()) * 2 + 1", f"{REAL}.to(torch.{{}})"),
    )
}
ARITHMETIC = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("c", torch.randn(5, 1, 16, dtype=torch.complex64))
        self.w = nn.Parameter(torch.randn(16))

    def forward(self, x, t):
        z = torch.view_as_complex(x) - self.c
        z = (z * self.w + 2.0) * torch.polar(torch.ones_like(t), t).conj()
        z = (-z).transpose(0, 1).sum(1) + torch.complex(t[0, :, 0], t[0, :, 1])[:, None] * 0.5
        return torch.view_as_real(z), z.abs(), torch.angle(z + 3.0), torch.view_as_real(z[:, :4].unsqueeze(0))


def get_inputs():
    return [torch.randn(5, 6, 16, 2), torch.randn(5, 6, 16)]
"""
FAST = ("rotation", "complex in and out", "quantised in groups")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in FAMILY])
def test_a_program_is_written_and_right(name: str, made: Machine) -> None:
    found = judged(made, task(*FAMILY[name]))
    assert found.passed, (found.status, found.message)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
def test_so_is_a_plan_of_library_calls(name: str, made: Machine) -> None:
    assert judged(made, task(*FAMILY[name]), choices={GIVEN_UP: PLAIN_PLAN}).passed


def test_complex_arithmetic_between_real_values_is_a_kernel(made: Machine) -> None:
    for source in (task(*FAMILY["rotation"]), ARITHMETIC):
        found = judged(made, source)
        assert found.passed and found.coverage > 0.9, (found.message, found.coverage)


def test_the_library_computes_it_where_that_is_chosen(made: Machine) -> None:
    with made.open_text("task", ARITHMETIC, seed=None, listener=silent) as bench:
        found = bench.evaluator.evaluate(write(task_engine(bench).graph, {"complex": "library"}), timed=False)
    assert found.passed and found.coverage < 0.2, found.message


def test_real_kernels_remain_around_complex_operators(made: Machine) -> None:
    found = judged(made, task(*FAMILY["spectrum"]))
    assert found.passed and 0.1 < found.coverage < 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        "x * self.c.conj() + 1",  # the imaginary part alone differs in sign
        "torch.complex((x * self.c + 1).real, torch.zeros_like(x.real))",
        "torch.complex((x * self.c + 1).imag, (x * self.c + 1).real)",
        "x * self.c + 1.001",
        "(x * self.c + 1).to(torch.complex128)",
    ],
)
def test_wrong_complex_results_are_refused(wrong: str, made: Machine) -> None:
    found = judged(made, task(*FAMILY["complex in and out"]), PLAN.format(wrong))
    assert found.status in ("wrong_value", "bad_output_spec") and found.fault == "candidate", found.message


@pytest.mark.parametrize(
    "wrong",
    [
        "(torch.tanh(x) * 3.6).to(torch.float8_e4m3fn)",
        "torch.zeros_like(x).to(torch.float8_e4m3fn)",
        "(torch.tanh(x) * 3).to(torch.float8_e5m2)",
        "(torch.tanh(x) * 3).round().to(torch.float8_e4m3fn)",
        "(torch.tanh(x).abs() * 3).to(torch.float8_e4m3fn)",
    ],
)
def test_wrong_8_bit_results_are_refused(wrong: str, made: Machine) -> None:
    found = judged(made, task(*FAMILY["float8_e4m3fn out"]), PLAN.format(wrong))
    assert found.status in ("wrong_value", "bad_output_spec") and found.fault == "candidate", found.message


def test_a_dtype_without_support_is_named(made: Machine) -> None:
    with pytest.raises(TaskError, match=r"cannot capture: a tensor of torch\.uint16") as caught:
        judged(made, task("", "return x.to(torch.uint16).float() * 2", "torch.randint(0, 9, (12, 33))"))
    assert "supported: " in (caught.value.hint or "") and "complex64" in (caught.value.hint or "")


# ---------------------------------------------------------------- tensors and inputs


@pytest.mark.parametrize("name", FLOAT8)
def test_8_bit_floats_are_torchs(name: str) -> None:
    dtype = getattr(torch, name)
    codes = torch.arange(256, dtype=torch.uint8)
    values = codes.view(dtype).double().numpy()
    assert np.array_equal(values, from_float8(codes.numpy(), name), equal_nan=True)
    rng = np.random.default_rng(3)
    spread = rng.standard_normal(20_000) * 10.0 ** rng.uniform(-7, 3, 20_000)
    known = values[np.isfinite(values)]
    ties = (np.sort(known)[1:] + np.sort(known)[:-1]) / 2
    inside = np.concatenate([spread, known, ties, [0.0, -0.0, np.nan, np.inf, -np.inf]]).astype(np.float32)
    wanted = torch.from_numpy(inside).to(dtype).double().numpy()
    largest = np.abs(known).max()
    kept = ~np.isfinite(inside) | (np.abs(inside) <= largest)  # what is larger depends on torch's version
    got = from_float8(to_float8(inside.astype(np.float64), name), name)
    assert np.array_equal(got[kept], wanted[kept], equal_nan=True)


@pytest.mark.parametrize("name", ["complex64", "complex128", *FLOAT8])
def test_tensors_keep_their_layout_through_processes(name: str) -> None:
    plain = torch.randn(6, 5, 2)
    plain = torch.view_as_complex(plain) if name.startswith("complex") else plain[..., 0]
    tensor = plain.to(getattr(torch, name)).t()[1:]
    held = from_torch(tensor)
    assert (held.dtype, held.shape, held.stride) == (name, (4, 6), (1, 5))
    back = to_torch(held)
    assert back.dtype == tensor.dtype and back.stride() == tensor.stride()
    assert torch.equal(
        back.cfloat() if tensor.is_complex() else back.float(),
        tensor.to(back.cfloat().dtype if tensor.is_complex() else torch.float32),
    )
    again = HostTensor.from_f64(held.to_f64(), held)
    assert np.array_equal(again.to_f64(), held.to_f64()) and again.stride == held.stride


@pytest.mark.parametrize(
    "family", ["normal", "shifted", "tiny", "spikes", "mixed_first", "strided", "transposed", "offset"]
)
def test_families_fill_both_parts_of_complex_inputs(family: str) -> None:
    rng = np.random.default_rng(1)
    one, two = (
        HostTensor.of((rng.standard_normal((8, 9)) + 1j * rng.standard_normal((8, 9))).astype(np.complex64))
        for _ in "ab"
    )
    made = make([one], family, observe([one], [two]), 5, "w")[0]
    parts = made.to_f64()
    assert made.dtype == "complex64" and parts.shape == (8, 9, 2)
    assert all((parts[..., part] != one.to_f64()[..., part]).mean() > 0.9 for part in (0, 1))
    assert not np.array_equal(parts[..., 0], parts[..., 1])


def test_a_nudge_moves_both_parts_and_keeps_the_layout() -> None:
    tensor = from_torch(torch.randn(5, 7, dtype=torch.complex64).t())
    moved = nudge([tensor], 3)[0]
    assert (moved.dtype, moved.stride) == ("complex128", tensor.stride)
    change = np.abs(moved.to_f64() - tensor.to_f64())
    assert (change > 0).mean() > 0.99 and change.max() < 1e-5
