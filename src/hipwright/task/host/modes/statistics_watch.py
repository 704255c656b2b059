"""Watches batch norms that update running statistics: they count no version of the tensors that they write. Runs in the
task host.
"""

from __future__ import annotations

from typing import Any

import torch

from hipwright.task.host.modes.value_checks import OperandChecks

_NORMS = frozenset(
    {
        "native_batch_norm",
        "_native_batch_norm_legit",
        "cudnn_batch_norm",
        "miopen_batch_norm",
        "_batch_norm_with_update",
    }
)
"""Batch norms by name: input, weight, bias, running mean, running variance, and whether they train."""


class StatisticsWatch(OperandChecks):
    """Notes the tensors that batch norms in training mode write their statistics to, with or without values.

    It checks operands too: a mode of their own would cost every operator once more.
    """

    def __init__(self) -> None:
        super().__init__()
        self._written: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.rpartition("::")[2]
        if name in _NORMS and (name == "_batch_norm_with_update" or (len(args) > 5 and args[5])):
            self._written += [tensor for tensor in args[3:5] if isinstance(tensor, torch.Tensor)]
        return super().__torch_dispatch__(func, types, args, kwargs)

    def wrote(self, tensor: torch.Tensor) -> bool:
        """Whether a batch norm was given this tensor to write to."""
        return any(tensor is one for one in self._written)
