"""The kernels of this package, launched through its native operators. Copied into every kernel as gpu.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import torch


class NoGpu(RuntimeError):
    """Tensors that are not on a GPU."""


class NoKernels:
    """Kernels that do nothing.

    A plan that runs with them only creates its tensors, as the rule for fake tensors needs.
    """

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _nothing


def _nothing(*arguments: Any) -> None:
    return None


class Kernels:
    """The native launchers of one package. ops: its namespace of torch.ops; names: of the kernels."""

    def __init__(self, ops: Any, names: Iterable[str]) -> None:
        self._made = SimpleNamespace(**{name: _launcher(ops, name) for name in names})

    def on(self, device: torch.device) -> Any:
        """The kernels as attributes: `k.name(grid, block, bytes of LDS, *arguments)`. Raises NoGpu elsewhere."""
        if device.type != "cuda":
            raise NoGpu(
                f"these kernels run on a GPU and the tensors are on {device}: move the module and its inputs, "
                "or ask for the reference with allow_reference=True"
            )
        return self._made


def missing() -> str:
    """What the kernels lack on this machine, in a line; "" where there is a GPU."""
    return "" if torch.cuda.is_available() else f"no GPU here (torch {torch.__version__} sees none)"


def _launcher(ops: Any, name: str) -> Callable[..., None]:
    def launch(grid: Any, block: Any, lds: int, *arguments: Any) -> None:
        native = getattr(ops, f"launch_{name}")
        given = (int(value) if isinstance(value, bool) else value for value in arguments)
        native(_dims(grid), _dims(block), int(lds), torch.cuda.current_stream().cuda_stream, *given)

    return launch


def _dims(value: Any) -> list[int]:
    """A grid or block as a list."""
    return [int(v) for v in value] if isinstance(value, (tuple, list)) else [int(value)]
