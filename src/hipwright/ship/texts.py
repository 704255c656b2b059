"""The constant parts of a shipped package's files."""

from __future__ import annotations

from hipwright.ship.interface import Interface

PYPROJECT = """[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "Kernels for one PyTorch module, as a torch operator; written by hipwright"
requires-python = ">=3.10"
dependencies = ["torch>=2.6"]

[tool.setuptools.packages.find]
where = ["src"]

[tool.setuptools.package-data]
{name} = ["*.hip", "include/*", "include/*/*"]
"""

PLAN_HEAD = '''"""The launch plan of {name}, from hipwright's program {key}: kernels and library operators in order.

k holds the kernels: k.NAME(grid, block, bytes of LDS, *arguments) launches one.
"""

import math
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

from .op import Declined
'''

HOST = '''
def cdiv(a, b):
    """Integer division rounded up."""
    return -(-a // b)


def next_pow2(n):
    """The smallest power of two that is at least n."""
    return 1 if n <= 1 else 1 << (int(n) - 1).bit_length()
'''

SPEC_HEAD = '''"""What the operators take and give, and what the kernels are called with.

STATE: (place among the arguments, path in the module, shape, dtype). SAVED: where each thing that backward reads comes
from. GRADS: which arguments the gradients are of. ATTRIBUTES: of the module that the kernels were written for. LISTED,
BACKWARD_LISTED: None, or of each argument whether it is in the list that an operator of more than 64 takes first.
"""

'''

DEFAULT = '''def default(allow_reference=False):
    """The module as the task constructs it."""
    return Module({init}allow_reference=allow_reference)


def _plain(value):
    """Lists and sizes as tuples, dtypes by name."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return str(value).removeprefix("torch.") if isinstance(value, (torch.dtype, torch.device)) else value
'''
"""Of every package's module: how the task constructs it, and how its attributes are compared."""

INIT = (
    '''"""{name}: a module whose forward is one operator, torch.ops.{name}.forward, with kernels of its own.

    model = {name}.default().cuda()          # the reference's constructor arguments
    model.load_state_dict(reference.state_dict())
    y = torch.compile(model, fullgraph=True)(x)

Module(...) takes what the reference takes. Without a GPU it raises NoGpu; allow_reference=True runs the reference's own
code there instead. `python -m {name}` compares the two on this machine's GPU.
"""

import warnings
from pathlib import Path

import torch

from . import op, plan, reference, spec
from .build import BuildError
from .gpu import Kernels, LaunchError, NoGpu, missing
from .op import Declined, NoBackward

KERNELS = Kernels(Path(__file__).parent / "kernels.hip", spec.DEFINES, spec.SIGNATURES)
op.register(spec, plan, KERNELS)


class Module(reference.Model):
    """The reference with its forward replaced. ValueError for attributes that the kernels were not written for."""

    def __init__(self, *args, allow_reference=False, **kwargs):
        super().__init__(*args, **kwargs)
        self.allow_reference = allow_reference
        if allow_reference and (why := missing()):
            warnings.warn(f"{name}: {{why}}: the reference's own code runs instead of the kernels", stacklevel=2)
        for path, expected in spec.ATTRIBUTES.items():
            value = self
            for name in path.split("."):
                value = getattr(value, name, None)
            if _plain(value) != _plain(expected):
                raise ValueError(f"{{path}} is {{value!r}}, and the kernels are for {{expected!r}}: ship it again")

    def forward({signature}):
        if self.allow_reference and not {tensor}.is_cuda:
            return super().forward({passed})
        if spec.TRAINING is not None and self.training is not spec.TRAINING:
            raise RuntimeError(f"the kernels are for a module with training={{spec.TRAINING}}")
        {results} = torch.ops.{name}.forward({flat})
{updates}        return {nest}


'''
    + DEFAULT
    + """

__all__ = ["KERNELS", "BuildError", "Declined", "LaunchError", "Module", "NoBackward", "NoGpu", "default"]
"""
)

MAIN = '''"""Compare the module with its reference on this machine: python -m PACKAGE [--reference].

Exit 0 when they agree, 1 when they differ, 3 where the kernels cannot run. --reference runs the reference alone.
"""

import copy
import sys
import warnings

import torch
from torch.utils import _pytree as pytree

from . import BuildError, default, reference, spec
from .gpu import missing

FLOOR = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float64: 1e-13}


def main():
    """Outputs, and gradients where there are some, against the reference in float64."""
    if "--reference" in sys.argv[1:]:
        return alone()
    if why := missing():
        print(f"{spec.NAME}: {why}; --reference runs the reference's own code", file=sys.stderr)
        return 3
    try:
        return compare()
    except BuildError as error:
        print(f"{spec.NAME}: {error}", file=sys.stderr)
        return 3


def alone():
    """The reference's own code on the CPU, through the module, as without a GPU."""
    torch.manual_seed(0)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        outputs = pytree.tree_leaves(default(allow_reference=True)(*reference.get_inputs()))
    for number, output in enumerate(outputs):
        print(f"{number}: {tuple(output.shape)} {output.dtype}: the reference's")
    return 0


def compare():
    """The comparison on the GPU; 1 when something differs."""
    torch.manual_seed(0)
    model = default().cuda()
    model.train(model.training if spec.TRAINING is None else spec.TRAINING)
    inputs = pytree.tree_map_only(torch.Tensor, lambda t: t.cuda(), list(reference.get_inputs()))
    wide = pytree.tree_map_only(torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, inputs)
    exact = run(copy.deepcopy(model).double(), wide, reference.Model.forward)
    honest = run(copy.deepcopy(model), inputs, reference.Model.forward)
    got = run(model, inputs, type(model).forward)
    bad = 0
    for number, (g, h, e) in enumerate(zip(got, honest, exact)):
        scale = e.double().square().mean().sqrt().clamp_min(1e-30)
        error, usual = (((t.double() - e).square().mean().sqrt() / scale).item() for t in (g, h))
        good = error <= max(4 * usual, FLOOR.get(g.dtype, 0.0))
        bad += not good
        print(f"{number}: {tuple(g.shape)} {g.dtype}: error {error:.2e}, the reference's own {usual:.2e}"
              f"{'' if good else '  WRONG'}")
    return 1 if bad else 0


def run(model, inputs, forward):
    """The floating outputs and, with a backward, the gradients."""
    want = spec.SAVED is not None
    given = pytree.tree_map_only(
        torch.Tensor, lambda t: t.detach().clone().requires_grad_(want and t.is_floating_point()), inputs
    )
    with torch.set_grad_enabled(want):
        outs = [t for t in pytree.tree_leaves(forward(model, *given)) if t.is_floating_point()]
    if not want:
        return outs
    generator = torch.Generator(outs[0].device).manual_seed(1)
    grads = [torch.randn(o.shape, generator=generator, device=o.device, dtype=torch.float32).to(o.dtype) for o in outs]
    leaves = [*pytree.tree_leaves(given), *model.parameters()]
    of = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    found = torch.autograd.grad(outs, of, grads, allow_unused=True)
    return [*(o.detach() for o in outs), *(g for g in found if g is not None)]


if __name__ == "__main__":
    sys.exit(main())
'''


def readme(name: str, found: Interface, key: str) -> str:
    """README.md of the package."""
    gradients = ", ".join(g.removeprefix("self.") for g in found.grads)
    backward = (
        f"Gradients: of {gradients}, by the program's own backward."
        if found.saved is not None
        else "It has no backward: a gradient that is computed raises NoBackward. Run it under `torch.no_grad()`."
    )
    return README.format(name=name, key=key, backward=backward)


README = """# {name}

Kernels for one PyTorch module, written by hipwright (program {key}), as a torch operator. It needs PyTorch with a GPU
and nothing of hipwright.

    pip install .
    python -m {name}              # compares with the reference on this machine's GPU; --reference: without one

```python
import torch, {name}

model = {name}.default().cuda()   # or {name}.Module(...), with the reference's arguments
model.load_state_dict(trained.state_dict())
model = torch.compile(model, fullgraph=True)
```

- `torch.ops.{name}.forward` is an ordinary operator: it has a schema and a rule for fake tensors with symbolic shapes.
- {backward}
- Kernels are built at first use, by hipRTC or hipcc on AMD and by NVRTC on NVIDIA, and kept in
  `$HIPWRIGHT_OPS_CACHE` (`~/.cache/hipwright-ops`). `{name}.KERNELS.on(torch.device("cuda:0"))` builds them now: do
  that before a CUDA graph is captured.
- Without a GPU it raises `NoGpu`; `Module(..., allow_reference=True)` runs the reference's own code there instead, and
  says so once, with what is missing.
- Shapes that the program does not claim raise `Declined`; parameters of other shapes or dtypes do too.

`src/{name}/plan.py` is the launch plan as Python, `kernels.hip` the kernels, `reference.py` the module they stand for.
"""
