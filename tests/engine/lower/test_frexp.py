"""torch.frexp in kernels: the bits of torch's for every exponent, subnormal numbers, zeros, infinities and NaN."""

from __future__ import annotations

import pytest
import torch

from hipwright.engine import author
from tests.engine.harness import Op, captured, run


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_every_exponent(dtype: torch.dtype) -> None:
    powers = torch.exp2(torch.arange(-149, 128).double()).float()
    x = torch.cat([powers, powers * 1.5, powers.nextafter(torch.zeros(1)), torch.tensor([0.0, float("inf")])])
    x = torch.cat([x, -x, torch.tensor([float("nan")])]).to(dtype)
    model = Op(lambda x: torch.frexp(x))
    made = author(captured(model, [x]), {})
    assert not made.explanation["library"]
    (mantissa, exponent), _ = run(made.program, model, [x])
    expected, exponents = torch.frexp(x)
    assert mantissa.dtype == expected.dtype and torch.equal(exponent, exponents)
    assert torch.equal(mantissa.nan_to_num(7.0), expected.nan_to_num(7.0))
