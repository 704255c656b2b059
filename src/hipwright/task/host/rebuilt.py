"""Buffers that a forward builds anew for the sizes of its inputs: caches, which are no state. Runs in a task host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from hipwright.errors import TaskError
from hipwright.task.host import state as states
from hipwright.task.host.load import TaskModule


def rebuilt(
    file: TaskModule, model: torch.nn.Module, before: Mapping[str, Any], again: Callable[[], Any]
) -> frozenset[str]:
    """Paths of buffers of a called model whose shapes are not those of the tensors `before`, and which a second call
    leaves as they are. again: calls the model once more.

    Raises TaskError for a state that takes another shape with every call.
    """
    changed = {
        path: tensor.detach().clone()
        for path, tensor in states.buffers(model)
        if path in before and tuple(tensor.shape) != tuple(before[path].shape)
    }
    if not changed:
        return frozenset()
    file.guarded(again, "forward")
    now = dict(states.buffers(model))
    for path, tensor in changed.items():
        if path not in now or not torch.equal(now[path], tensor):
            was, then = list(before[path].shape), list(tensor.shape)
            said = f"{file.name}: self.{path} has another shape after every call: {was}, then {then}"
            raise TaskError(said, hint="keep a state in a buffer of one size, with a count of what it holds")
    return frozenset(changed)
