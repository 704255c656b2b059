"""A call of a candidate under the seed of its case, as a user's torch.manual_seed before the module. Imports torch.

The plan's random operators take their numbers from torch's generator, whose state after the call is reported: it shows
whether the plan drew as many numbers as the reference. On a device the expectations still come from the reference on
the CPU, so there the operators draw on the CPU too (`HostDraws`), in the plan's order, shapes and dtypes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from hipwright.higher_order import OperatorMode

_MODULUS = 1 << 63


@contextmanager
def seeded(seed: int | None, device: str) -> Iterator[None]:
    """Sets the generator for one call; seed: None leaves all as it is."""
    with ExitStack() as stack:
        if seed is not None:
            torch.manual_seed(seed % _MODULUS)
            if torch.device(device).type != "cpu":
                # the forms in which attention and recurrent layers draw on the CPU
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))
                stack.enter_context(HostDraws())
        yield


def generator_state() -> str:
    """The digest of torch's generator, as the task host forms it."""
    return sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()


class HostDraws(OperatorMode):
    """Random operators on a device's tensors draw on the CPU, from its generator."""

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        own = any(isinstance(leaf, torch.Generator) for leaf in leaves)  # the poison's, not the plan's
        if own or torch.Tag.nondeterministic_seeded not in getattr(func, "tags", ()):
            return func(*args, **kwargs)
        devices = {leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)}
        named = {torch.device(leaf) for leaf in leaves if isinstance(leaf, torch.device)}
        home = next((one for one in (*devices, *named) if one.type != "cpu"), None)
        if home is None:
            return func(*args, **kwargs)
        host_args, host_kwargs = pytree.tree_map(_to_cpu, (args, kwargs))
        out = func(*host_args, **host_kwargs)
        for given, drawn, argument in zip(args, host_args, func._schema.arguments, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given.copy_(drawn)
        in_place = func._schema.name.endswith("_")
        return args[0] if in_place else pytree.tree_map(lambda leaf: _to(leaf, home), out)


def _to_cpu(leaf: Any) -> Any:
    return torch.device("cpu") if isinstance(leaf, torch.device) else _to(leaf, torch.device("cpu"))


def _to(leaf: Any, device: torch.device) -> Any:
    return leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf
