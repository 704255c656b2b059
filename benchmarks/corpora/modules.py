"""The modules of torch's own test database (`module_db`), with every input, in float32 and the half types."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from benchmarks.corpora.corpus import CorpusTask, file_name

MODES = {"train": True, "eval": False}
INPUTS = 6
"""Inputs of one task: each has a module of its own, which its forward calls."""

TEXT = '''"""torch's module {name} in {dtype}, {mode} mode: inputs {first} to {last} of its test database."""

import torch
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_flatten, tree_unflatten

INFO = next(info for info in module_db if info.name == {name!r})
torch.manual_seed(0)
MADE = INFO.module_inputs_func(INFO, device="cpu", dtype={dtype}, requires_grad=False, training={training})
MADE = [made for made in MADE if made.forward_input is not None][{first} : {last} + 1]
LEAVES, SPEC = tree_flatten([(made.forward_input.args, made.forward_input.kwargs) for made in MADE])
PLACES = [place for place, leaf in enumerate(LEAVES) if isinstance(leaf, torch.Tensor)]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.ModuleList(
            INFO.module_cls(*made.constructor_input.args, **made.constructor_input.kwargs) for made in MADE
        )
        self.to({dtype}).train({training})

    def forward(self, {names}):
        leaves = list(LEAVES)
        for place, tensor in zip(PLACES, ({names},), strict=True):
            leaves[place] = tensor
        calls = tree_unflatten(leaves, SPEC)
        return [module(*args, **kwargs) for module, (args, kwargs) in zip(self.inner, calls, strict=True)]


def get_inputs():
    return [LEAVES[place] for place in PLACES]
'''


class Modules:
    """One task for each module, dtype, mode and `INPUTS` inputs. Inputs of constructors that raise are left out."""

    packages = ("torch", "expecttest")
    imported = ("hipwright.task.host.databases",)

    def tasks(self, real: bool = False) -> Iterator[CorpusTask]:
        """All tasks; the inputs have one size each, so `real` changes nothing."""
        import torch
        from torch.testing._internal.common_modules import module_db

        for info in module_db:
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                if dtype in info.dtypes:
                    for mode in MODES:
                        yield from _tasks(info, dtype, mode)


def _tasks(info: Any, dtype: Any, mode: str) -> Iterator[CorpusTask]:
    import torch
    from torch.utils._pytree import tree_leaves

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=MODES[mode])
    inputs = [made for made in inputs if made.forward_input is not None]
    for first in range(0, len(inputs), INPUTS):
        chosen = inputs[first : first + INPUTS]
        leaves = tree_leaves([(made.forward_input.args, made.forward_input.kwargs) for made in chosen])
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if not tensors:
            continue
        text = TEXT.format(
            name=info.name,
            dtype=dtype,
            mode=mode,
            training=MODES[mode],
            first=first,
            last=first + len(chosen) - 1,
            names=", ".join(f"x{place}" for place in range(len(tensors))),
        )
        name = file_name(info.name.removeprefix("nn."), str(dtype).removeprefix("torch."), mode, f"{first:03}")
        yield CorpusTask(name, info.name, text)
