"""The reference on a device, on parameters that stay there: `TaskHandle.delegate`. Does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hipwright.held import HeldBy, HeldTable, Recipe, held
from hipwright.records import TensorSpec
from hipwright.tensors import Tree
from hipwright.verify.gpu.reference import DeviceReference


class HeldReference:
    """Runs of a task's reference in its device host. open_: the host, started with the first run."""

    def __init__(self, open_: Callable[[], DeviceReference]) -> None:
        self._open = open_
        self._holder = HeldBy(self._make, self._fetch, open_, self._bridged)

    def init_state(self, seed: int) -> Tree | None:
        """The state table of a Model constructed under a seed, its parameters held; None where they cannot be."""
        recipe = {"kind": "init", "seed": seed}
        reply, table = self._open().ask("held_init", {"recipe": recipe})
        return {**table, "params": HeldTable(self._holder, recipe)} if reply["separate"] else None

    def run(self, header: Mapping[str, Any], inputs: Tree, state: Tree) -> Any:
        """(outputs, buffers, info) of a run on a held state, as the task host returns them."""
        table = held(state)
        assert table is not None
        return self._open().ask("held_run", {**header, "recipe": table.recipe}, [inputs, state["buffers"]])[1]

    def _make(self, recipe: Recipe) -> Mapping[str, tuple[TensorSpec, str]]:
        reply, specs = self._open().ask("held_params", {"recipe": recipe})
        return {path: (spec, reply["places"][path]) for path, spec in specs.items()}

    def _bridged(self, recipe: Recipe, place: str, bridge: int, offset: int, bytes_: int) -> None:
        header = {"recipe": recipe, "path": place, "bridge": bridge, "offset": offset, "bytes": bytes_}
        self._open().ask("held_bytes", header, json_only=True)

    def _fetch(self, recipe: Recipe, place: str) -> npt.NDArray[np.uint8]:
        tensor = self._open().ask("held_bytes", {"recipe": recipe, "path": place})[1]
        found: npt.NDArray[np.uint8] = tensor.storage
        return found
