"""Tensors that a module keeps in plain attributes, as buffers while it is traced. Imports torch.

torch.export sees an assignment to a buffer as an update of it; one to a plain attribute is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
