"""Tensors that a module keeps in plain attributes, as buffers while it is traced. Imports torch.

torch.export sees an assignment to a buffer as an update of it; one to a plain attribute is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from hipwright.errors import TaskError


@contextmanager
def attributes_as_buffers(model: torch.nn.Module) -> Iterator[None]:
    """Registers every plain tensor attribute of the model's modules as a buffer, until the block ends."""
    moved = [
        (module, name, value)
        for module in model.modules()
        for name, value in list(vars(module).items())
        if isinstance(value, torch.Tensor)
    ]
    for module, name, value in moved:
        del vars(module)[name]
        module.register_buffer(name, value, persistent=False)
    try:
        yield
    finally:
        for module, name, value in moved:
            module._buffers.pop(name, None)
            module._non_persistent_buffers_set.discard(name)
            vars(module)[name] = value


def no_fixed_state(constants: Iterable[Any], state: Mapping[str, torch.Tensor]) -> None:
    """Raises TaskError where a trace holds a parameter or buffer as a constant: the forward reads it from another place
    than where it is registered, such as a list, and may have taken numbers from its values.
    """
    places = {tensor.untyped_storage().data_ptr(): name for name, tensor in state.items() if tensor.numel()}
    for held in constants:
        name = places.get(held.untyped_storage().data_ptr()) if isinstance(held, torch.Tensor) else None
        if name is not None:
            raise TaskError(
                f"cannot capture: the forward reads self.{name} from a list or another object, as a constant",
                hint="read it where it is registered",
            )


def placed_items(model: torch.nn.Module) -> dict[str, Any]:
    """{"positions"} of the graph, if there are any: a slice of a Sequential keeps the names of its items."""
    found = {
        f"{path}.{name}".removeprefix("."): place
        for path, module in model.named_modules()
        for place, name in enumerate(module._modules)
        if name.isdigit() and int(name) != place and isinstance(module, (torch.nn.Sequential, torch.nn.ModuleList))
    }
    return {"positions": found} if found else {}
