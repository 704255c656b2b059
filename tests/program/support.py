"""A launcher whose kernels are Python functions on torch tensors, and state tables made from real modules."""

from __future__ import annotations

import ast
from typing import Any

import torch

from hipwright.errors import ProgramError
from hipwright.program import Parsed, language, parse
from hipwright.program.lower import ops
from hipwright.program.lower.closures import lower
from hipwright.program.lower.plan import LoweredPlan


class FakeLauncher:
    """Runs a kernel as a Python function that writes its tensor arguments in place."""

    def __init__(self, kernels: dict[str, Any] | None = None) -> None:
        self.kernels = kernels or {}
        self.launches: list[tuple[Any, ...]] = []
        self.allocated: list[torch.Tensor] = []

    def launch(self, kernel: str, grid: Any, block: Any, lds_bytes: int, args: Any) -> None:
        self.launches.append((kernel, grid, block, lds_bytes, list(args)))
        if kernel in self.kernels:
            self.kernels[kernel](*args)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        out = torch.empty(shape, dtype=dtype)
        out.view(-1).view(torch.uint8).fill_(0xA5)
        self.allocated.append(out)
        return out


def add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, n: int) -> None:
    out.copy_(x + y)


def relu(x: torch.Tensor, out: torch.Tensor, n: int) -> None:
    out.copy_(x.clamp(min=0))


def scale(x: torch.Tensor, out: torch.Tensor, factor: float, n: int) -> None:
    out.copy_(x * factor)


KERNELS = {"add": add, "relu": relu, "scale": scale}
HIP = '''HIP = r"""
#include <hip/hip_runtime.h>
extern "C" __global__ void add(const float* x, const float* y, float* out, long n) {}
extern "C" __global__ void relu(const float* __restrict__ x, float* out, long n) {}
extern "C" __global__ void scale(const float *x, float *out, float factor, int n) {}
template <typename T> __global__ void generic(T* x) {}
__global__ void mangled(float* x) {}
"""
BLOCK = knob(256, choices=[64, 128, 256])
FAST = knob(True, choices=[False, True])
TILE = BLOCK * 2
'''


def state_of(model: torch.nn.Module) -> dict[str, Any]:
    """The state table of a module, as the task host makes it."""
    modules = {}
    attrs: dict[str, Any] = {}
    for path, module in model.named_modules():
        sized = isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ParameterList))
        children = [name for name, _ in module.named_children()]
        modules[path] = {"class": type(module).__name__, "len": len(module) if sized else -1, "children": children}
        for name, value in vars(module).items():
            if not name.startswith("_") and (value is None or isinstance(value, (int, float, bool, str, tuple, list))):
                attrs[f"{path}.{name}" if path else name] = value
        for name, value in module._parameters.items():
            if value is None:
                attrs[f"{path}.{name}" if path else name] = None
    return {
        "params": {k: v.detach() for k, v in model.named_parameters()},
        "buffers": dict(model.named_buffers()),
        "attrs": attrs,
        "modules": modules,
        "training": model.training,
    }


def plan_of(
    text: str, model: Any = None, knobs: dict[str, int] | None = None, launcher: Any = None, **kwargs: Any
) -> tuple[LoweredPlan, FakeLauncher]:
    """Lower `text` (HIP and knobs are put in front when it has none)."""
    text = text if "HIP =" in text else HIP + text
    launcher = launcher or FakeLauncher(KERNELS)
    table = state_of(model) if isinstance(model, torch.nn.Module) else (model or {})
    return lower(parse(text), knobs or {}, table, launcher, **kwargs), launcher


def check_ops(parsed: Parsed) -> None:
    """Resolves every library call of a Parsed program; raises ProgramError with the line of the first that fails."""
    for function in parsed.functions.values():
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            found = language.library_name(node.func)
            try:
                if found is None:
                    ops.resolve("method", (node.func.attr,), allow_random=True, in_place=node.func.attr.endswith("_"))
                else:
                    ops.resolve(found[0], found[1], allow_random=True)
            except ops.OperatorRefused as why:
                raise ProgramError(str(why), node.lineno) from None
