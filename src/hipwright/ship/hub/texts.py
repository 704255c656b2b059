"""The constant parts of a Hugging Face kernel's files."""

from __future__ import annotations

from hipwright.ship.texts import DEFAULT

BUILD = """[general]
name = "{kernel}"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda", "rocm"]

[torch]
src = ["torch-ext/torch_binding.cpp", "torch-ext/torch_binding.h"]

[kernel.{name}_cuda]
backend = "cuda"
depends = ["torch"]
include = ["{name}_cuda"]
src = [{cuda}]

[kernel.{name}_rocm]
backend = "rocm"
depends = ["torch"]
rocm-archs = [{archs}]
src = ["{name}_rocm/kernels.hip"]
"""

FLAKE = """{{
  description = "{kernel}: kernels of one PyTorch module, by hipwright";
  inputs.kernel-builder.url = "github:huggingface/kernels";
  outputs =
    {{ self, kernel-builder }}:
    kernel-builder.lib.genKernelFlakeOutputs {{
      inherit self;
      path = ./.;
    }};
}}
"""

CARD = """---
library_name: kernels
license: apache-2.0
tags:
  - kernel
---

# {kernel}

Kernels for one PyTorch module, written and verified by hipwright (program {key}), for AMD (ROCm) and NVIDIA (CUDA).

```python
from kernels import get_kernel

kernel = get_kernel("<user>/{kernel}", version=1)
model = kernel.default().cuda()       # the reference's module with its forward replaced
y = kernel.{function}({arguments})
```

- `{function}(...)` is one operator with a rule for fake tensors; {backward}
- `layers.{layer}` is for `kernelize`: only a forward, which reads the replaced module's parameters.
- `reference` has the module that the kernels stand for. NOTICE says whose it is.

Build: `kernel-builder build-and-copy` or `nix run .#build-and-copy`. Measure: `kernels benchmark <user>/{kernel}@v1`.
"""

INIT = (
    '''"""{kernel}: one PyTorch module as an operator with kernels of its own; by hipwright, program {key}."""

import warnings

import torch

from . import op, plan, reference, spec
from ._ops import add_op_namespace_prefix, ops
from .gpu import Kernels, NoGpu, missing
from .op import Declined, NoBackward

spec.NAME = add_op_namespace_prefix("")[:-2]  # unique for each build
KERNELS = Kernels(ops, spec.SIGNATURES)
op.register(spec, plan, KERNELS, "FRAGMENT")


def {function}({arguments}):
    """The operator: the outputs, then new values of buffers that it writes, then what its backward needs."""
    return ops.forward({operands})


def _check(module):
    """Raises ValueError for a module whose attributes the kernels were not written for."""
    for path, expected in spec.ATTRIBUTES.items():
        value = module
        for name in path.split("."):
            value = getattr(value, name, None)
        if _plain(value) != _plain(expected):
            raise ValueError(f"{{path}} is {{value!r}}, and the kernels are for {{expected!r}}")
    if spec.TRAINING is not None and module.training is not spec.TRAINING:
        raise RuntimeError(f"the kernels are for a module with training={{spec.TRAINING}}")


class Module(reference.Model):
    """The reference with its forward replaced. Without a GPU, allow_reference=True runs the reference's own code."""

    def __init__(self, *args, allow_reference=False, **kwargs):
        super().__init__(*args, **kwargs)
        self.allow_reference = allow_reference
        if allow_reference and (why := missing()):
            warnings.warn(f"{kernel}: {{why}}: the reference's own code runs instead of the kernels", stacklevel=2)

    def forward({signature}):
        if self.allow_reference and not {tensor}.is_cuda:
            return super().forward({passed})
        return layers.{layer}.forward(self{comma}{passed})


'''
    + DEFAULT
    + """

from . import layers  # noqa: E402  reads the names above

__all__ = ["Declined", "Module", "NoBackward", "NoGpu", "default", "{function}", "layers", "reference"]
"""
)

LAYERS = '''"""Layers for `kernels.kernelize`: a forward alone each, which reads the members of the replaced module."""

import torch.nn as nn

from . import _check, spec
from ._ops import ops


class {layer}(nn.Module):
    """The forward of {kernel}'s module."""

    has_backward = spec.SAVED is not None
    can_torch_compile = True

    def forward({signature}):
        _check(self)
        {results} = ops.forward({flat})
{updates}        return {nest}


__all__ = ["{layer}"]
'''

TEST = '''"""The kernels against the reference in float64, on this machine's GPU."""

import copy

import pytest
import torch
from torch.utils import _pytree as pytree

import {name}

FLOOR = {{torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float64: 1e-13}}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", [False, True])
def test_forward(compiled):
    torch.manual_seed(0)
    model = {name}.default().cuda()
    inputs = pytree.tree_map_only(torch.Tensor, lambda t: t.cuda(), list({name}.reference.get_inputs()))
    wide = pytree.tree_map_only(torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, inputs)
    plain = {name}.reference.Model.forward
    with torch.no_grad():
        exact = pytree.tree_leaves(plain(copy.deepcopy(model).double(), *wide))
        honest = pytree.tree_leaves(plain(copy.deepcopy(model), *inputs))
        got = pytree.tree_leaves((torch.compile(model, fullgraph=True) if compiled else model)(*inputs))
    assert len(got) == len(honest)
    for g, h, e in zip(got, honest, exact):
        assert g.shape == h.shape and g.dtype == h.dtype
        scale = e.double().square().mean().sqrt().clamp_min(1e-30)
        error, usual = (((t.double() - e).square().mean().sqrt() / scale).item() for t in (g, h))
        assert error <= max(4 * usual, FLOOR.get(g.dtype, 0.0))


def test_shapes_without_data():
    model = {name}.default().to("meta")
    inputs = pytree.tree_map_only(torch.Tensor, lambda t: t.to("meta"), list({name}.reference.get_inputs()))
    assert all(leaf.is_meta for leaf in pytree.tree_leaves(model(*inputs)))
'''

BENCHMARK = '''"""Timing against the reference in eager PyTorch: `kernels benchmark REPOSITORY@v1`."""

import torch
from kernels.benchmark import Benchmark
from torch.utils import _pytree as pytree


class {layer}Benchmark(Benchmark):
    """The module at the shapes of its task."""

    seed = 42

    def setup(self):
        def placed(tensor):
            return tensor.to(self.device)

        self.model = self.kernel.default(allow_reference=self.device == "cpu").to(self.device)
        inputs = list(self.kernel.reference.get_inputs())
        self.inputs = pytree.tree_map_only(torch.Tensor, placed, inputs)

    def benchmark_forward(self):
        with torch.no_grad():
            self.out = _first(self.model(*self.inputs))

    def verify_forward(self) -> torch.Tensor:
        with torch.no_grad():
            return _first(self.kernel.reference.Model.forward(self.model, *self.inputs))


def _first(value):
    """The first output, which the runner compares."""
    return pytree.tree_leaves(value)[0]
'''

EXAMPLE = '''"""Runs the kernel once: from a local build (kernel-builder build-and-copy), on this machine's GPU."""

from pathlib import Path

import torch
from kernels import get_local_kernel
from torch.utils import _pytree as pytree

kernel = get_local_kernel(Path(__file__).parent)
model = kernel.default().cuda()
inputs = pytree.tree_map_only(torch.Tensor, lambda t: t.cuda(), list(kernel.reference.get_inputs()))
with torch.no_grad():
    print(pytree.tree_map(lambda t: (tuple(t.shape), t.dtype), model(*inputs)))
'''
