"""Watches operators: batch norms that update running statistics, which count no version of the tensors that they
write, and decompositions of matrices. Runs in the task host.
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
_DECOMPOSITIONS = frozenset(
    """_linalg_eigh linalg_eig _linalg_svd linalg_qr geqrf linalg_lu linalg_lu_factor_ex linalg_cholesky_ex cholesky
    linalg_ldl_factor_ex linalg_inv_ex _linalg_solve_ex linalg_lstsq linalg_pinv _linalg_det _linalg_slogdet
    cholesky_inverse linalg_solve_triangular triangular_solve""".split()  # noqa: SIM905  # as a text that is read
)
"""Their results may move by far more than their operands' rounding, and by a discrete choice (a vector's sign)."""


class OperatorWatch(OperandChecks):
    """Notes the tensors that batch norms in training mode write their statistics to, with or without values.

    decomposes: whether a matrix was decomposed.

    It checks operands too: a mode of their own would cost every operator once more.
    """

    def __init__(self) -> None:
        super().__init__()
        self._written: list[torch.Tensor] = []
        self.decomposes = False

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._schema.name.rpartition("::")[2]
        self.decomposes |= name in _DECOMPOSITIONS
        if name in _NORMS and (name == "_batch_norm_with_update" or (len(args) > 5 and args[5])):
            self._written += [tensor for tensor in args[3:5] if isinstance(tensor, torch.Tensor)]
        return super()._call(func, args, kwargs)

    def wrote(self, tensor: torch.Tensor) -> bool:
        """Whether a batch norm was given this tensor to write to."""
        return any(tensor is one for one in self._written)
