"""The operators of torch's own test database (`op_db`), with every sample input, in float32 and the half types."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

from benchmarks.corpora.corpus import CorpusTask, file_name

SAMPLES = 6
"""Sample inputs of one task: each is one call of its forward."""

TEXT = '''"""torch's operator `{name}`{variant_text} in {dtype}: samples {first} to {last} of its test database."""

import random

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

OP = next(op for op in op_db if (op.name, op.variant_test_name) == ({name!r}, {variant!r}))
random.seed(0)
torch.manual_seed(0)
{unseeded}SAMPLES = list(OP.sample_inputs("cpu", {dtype}, requires_grad=False))[{first} : {last} + 1]
LEAVES, SPEC = tree_flatten([(sample.input, sample.args, sample.kwargs) for sample in SAMPLES])
PLACES = [place for place, leaf in enumerate(LEAVES) if isinstance(leaf, torch.Tensor)]


class Model(torch.nn.Module):
    def forward(self, {names}):
        leaves = list(LEAVES)
        for place, tensor in zip(PLACES, ({names},), strict=True):
            leaves[place] = tensor{copied}
        return [OP.op(first, *args, **kwargs) for first, args, kwargs in tree_unflatten(leaves, SPEC)]


def get_inputs():
    return [LEAVES[place] for place in PLACES]
'''


UNSEEDED = """import torch.testing._internal.common_methods_invocations as database

# the database seeds torch around a random operator; here it draws from the seed that the verifier gives
database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
"""

WRITING = {
    *("cauchy", "exponential", "geometric", "log_normal", "normal", "uniform"),
    *("nn.functional.embedding", "nn.functional.embedding_bag", "nn.functional.instance_norm"),
}
"""Operators of which a sample writes to an argument: they get copies, as a task's forward leaves its inputs alone."""


class Operators:
    """One task for each operator, dtype and `SAMPLES` sample inputs. Samples without a dense tensor are left out."""

    packages = ("torch", "expecttest")
    imported = ("hipwright.task.host.databases",)

    def tasks(self, real: bool = False) -> Iterator[CorpusTask]:
        """All tasks; the samples have one size each, so `real` changes nothing."""
        import torch
        from torch.testing._internal.common_methods_invocations import op_db

        for op in op_db:
            for dtype in _dtypes(op, (torch.float32, torch.float16, torch.bfloat16)):
                yield from _tasks(op, dtype)


def _dtypes(op: Any, wanted: tuple[Any, ...]) -> list[Any]:
    """Those of the wanted dtypes that an operator supports; else its widest integers, else the first that it has."""
    import torch

    supported = op.supported_dtypes("cpu")
    floats = [dtype for dtype in wanted if dtype in supported]
    if floats or not supported:  # some exist on a GPU alone
        return floats
    return [torch.int64 if torch.int64 in supported else min(supported, key=str)]


def _tasks(op: Any, dtype: Any) -> Iterator[CorpusTask]:
    import torch

    random.seed(0)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    family = file_name(op.name, op.variant_test_name)
    for first in range(0, len(samples), SAMPLES):
        tensors = _tensors(samples[first : first + SAMPLES])
        if not tensors or any(tensor.layout != torch.strided for tensor in tensors):
            continue
        last = min(first + SAMPLES, len(samples)) - 1
        text = TEXT.format(
            name=op.name,
            variant=op.variant_test_name,
            variant_text=f" ({op.variant_test_name})" if op.variant_test_name else "",
            dtype=dtype,
            unseeded=UNSEEDED if _is_seeded(op.op) else "",
            copied=".clone()" if op.name in WRITING else "",
            first=first,
            last=last,
            names=", ".join(f"x{number}" for number in range(len(tensors))),
        )
        name = file_name(family, str(dtype).removeprefix("torch."), f"{first:04}")
        yield CorpusTask(name, family, text)


def _tensors(samples: list[Any]) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    leaves = tree_leaves([(sample.input, sample.args, sample.kwargs) for sample in samples])
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _is_seeded(function: Any) -> bool:
    code = getattr(function, "__code__", None)  # a builtin has none
    return code is not None and "wrapper_set_seed" in code.co_names
