"""The page's examples with real kernels: built for the cpu target, lowered, run, compared with torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.program.lower.plan import LoweredPlan
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu

from .support import state_of
from .test_docs import EXAMPLES

pytestmark = pytest.mark.slow


class Holder(nn.Module):
    """A model with the attributes that an example reads."""

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        for name, value in parts.items():
            setattr(self, name, value)


def real_plan(text: str, model: nn.Module, tmp_path: Path, **knobs: int) -> LoweredPlan:
    parsed = parse(text)
    cache = BuildCache(tmp_path)
    build = cpu.build(parsed.hip, parsed.defines(knobs), cache=cache)
    assert build.ok, build.log
    return lower(parsed, knobs, state_of(model), CpuLauncher(str(cache.path(build.blob)), parsed.signatures))


def example(word: str) -> str:
    return next(text for text in EXAMPLES if word in text)


def test_bias_relu(tmp_path: Path) -> None:
    model = Holder(conv=nn.Conv2d(3, 5, 3, padding=1))
    x = torch.randn(2, 3, 9, 7)
    plan = real_plan(example("bias_relu"), model, tmp_path, BLOCK=64, ITEMS=2)
    torch.testing.assert_close(plan.forward(x), F.relu(model.conv(x)).detach())


def test_module_list(tmp_path: Path) -> None:
    layers = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 2)])
    x = torch.randn(33, 6)
    expected = layers[2](F.relu(layers[1](F.relu(layers[0](x))))).detach()
    torch.testing.assert_close(
        real_plan(example("rows of float32"), Holder(layers=layers), tmp_path).forward(x), expected
    )


def test_packed_weights(tmp_path: Path) -> None:
    model = Holder(fc=nn.Linear(6, 8))
    x = torch.randn(33, 6)
    plan = real_plan(example("def prepare"), model, tmp_path)
    torch.testing.assert_close(plan.forward(x), model.fc(x).detach(), atol=2e-2, rtol=2e-2)
    plan.tensors["fc.weight"].zero_()
    torch.testing.assert_close(plan.forward(x), model.fc.bias.detach().expand(33, 8))


def test_gradients(tmp_path: Path) -> None:
    plan = real_plan(example("def backward"), Holder(a=3.0), tmp_path)
    x = torch.randn(700)
    out, saved = plan.forward_saved(x)
    torch.testing.assert_close(out, 3 * x)
    torch.testing.assert_close(plan.backward(out, saved), 9 * x)
