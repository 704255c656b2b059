"""Attention without a softmax: weights that are functions of the scores, never in memory."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import author, write
from hipwright.engine.knobs import SPLIT
from hipwright.program import parse
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.attention.test_attention_templates import BRAIN, HALF, TARGETS, draw
from tests.engine.harness import CACHE, captured, compare, reference, run

KEY = "attention:matmul_1"
FUSED = {SPLIT: True, KEY: "fused"}


class Weighted(torch.nn.Module):
    """SiLU of scaled products plus a bias, causal, over the number of keys; heads are columns of each token."""

    def __init__(self, heads: int, size: int, kind: str = "silu") -> None:
        super().__init__()
        self.heads, self.size, self.kind = heads, size, kind

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> Any:
        q, k, v = (x.view(*x.shape[:2], self.heads, self.size).transpose(1, 2) for x in (q, k, v))
        scores = q @ k.transpose(-1, -2) * self.size**-0.5
        if self.kind == "squares":
            weights = torch.relu(scores + bias).square() / 50
        elif self.kind == "scaled":
            weights = scores * 2
        else:
            seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
            weights = F.silu(scores + bias).masked_fill(~seen, 0.0) / 100
        return (weights @ v).transpose(1, 2).reshape(v.shape[0], q.shape[2], -1) * 2


def given(tokens: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [*(draw(2, tokens, 2 * size, dtype=dtype) * (k + 1) for k in range(3)), draw(tokens, tokens, dtype=dtype)]


@pytest.mark.parametrize(("kind", "tokens", "size"), [("silu", 150, 64), ("silu", 64, 128), ("squares", 70, 32)])
@pytest.mark.parametrize("dtype", [HALF, BRAIN])
def test_values(kind: str, tokens: int, size: int, dtype: torch.dtype) -> None:
    model, inputs = Weighted(2, size, kind), given(tokens, size, dtype)
    program = write(captured(model, inputs), FUSED)
    assert "scores are weights" in program.text and "row_max" not in program.text
    assert ("n_end = m0" in program.text) == (kind == "silu"), "keys after the query weigh nothing"
    expected, native, _ = reference(model, inputs)
    compare(run(program, model, inputs, side="nvidia", wave=32)[0], expected, native)
    compare(run(program, model, inputs, wave=64)[0], expected, native)


def test_values_that_are_not_finite_of_keys_that_are_skipped() -> None:
    """0 times infinity is NaN in the module, for queries before the key too."""
    model, inputs = Weighted(2, 32), given(90, 32, HALF)
    inputs[2][0, 80, 3], inputs[1][1, 5, 0] = math.inf, math.nan
    expected, native, _ = reference(model, inputs)
    got = run(write(captured(model, inputs), FUSED), model, inputs, side="nvidia", wave=32)[0]
    assert got.isnan().any()
    compare(got, expected, native)


def test_the_rule() -> None:
    """Many scores of half types; a product of three matrices and other dtypes are left as they are."""

    def default(dtype: torch.dtype, tokens: int, kind: str = "silu") -> Any:
        inputs = [torch.zeros(16, tokens, 256, dtype=dtype) for _ in range(3)]
        inputs.append(torch.zeros(tokens, tokens, dtype=dtype))
        space = author(captured(Weighted(2, 128, kind), inputs), {SPLIT: True}).space
        return space[KEY].default if KEY in space else None

    assert default(BRAIN, 1536) == "fused"
    assert default(BRAIN, 256) == "separate", "few scores stay in the cache"
    assert default(torch.float32, 1536) == "separate"
    assert default(BRAIN, 1536, "scaled") is None
    inputs = given(64, 64, HALF)
    assert KEY not in author(captured(Weighted(2, 64), inputs), {}).space, "without tensor cores"


@pytest.mark.parametrize("size", [64, 128])
def test_builds(size: int) -> None:
    program = write(captured(Weighted(2, size), given(256, size, BRAIN)), FUSED)
    parsed = parse(program.text)
    defines = parsed.defines(program.knobs)
    for target in TARGETS:
        build = amdgpu.build(parsed.hip, target, defines, cache=CACHE, unsafe=True)
        assert build.ok, build.log
        assert [k.name for k in build.kernels if k.scratch_bytes] == []
    build = nvrtc.build(parsed.hip, defines, arch="sm_90", pool=warm.compilers(), cache=CACHE)
    assert build.ok, build.log
    assert [k.name for k in build.kernels if k.spills] == []
