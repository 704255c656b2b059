"""The Python of a definition's reference and of a solution's entry."""

from __future__ import annotations

REFERENCE = '''

# By hipwright: the module above as a function of all that it reads.

import torch as _torch

_models = []


def run({arguments}):
    """The module's outputs, in order, for these inputs, parameters and buffers."""
    if not _models:
        _models.append(Model({init}))
    state = {{{state}}}
    with _torch.no_grad():
        out = _torch.func.functional_call(_models[0], state, ({inputs}))
    return {outputs}
'''

MAIN = '''"""{name}: hipwright's program {key} as a function of all that it reads.

Its kernels are built at the first call: by hipRTC or hipcc on AMD, by NVRTC on NVIDIA. `plan` has the launches.
"""

from pathlib import Path

import torch

from . import op, plan, spec
from .gpu import Kernels

KERNELS = Kernels(Path(__file__).parent / "kernels.hip", spec.DEFINES, spec.SIGNATURES)
_OPERATOR = op.Operator(spec, plan, KERNELS)


def run({arguments}):
    """The outputs, in the definition's order."""
    with torch.no_grad():
        found = _OPERATOR.forward({read})
    return found{chosen}
'''
