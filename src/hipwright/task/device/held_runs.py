"""State tables of the device host, and runs of the reference on those that are made there and stay.

A task with hundreds of millions of parameters is verified at small shapes like any other; its parameters are drawn,
changed and widened where the reference runs. Runs in the device host.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

import torch

from hipwright.digest import span
from hipwright.errors import TaskError
from hipwright.held import key_of
from hipwright.targets import TORCH_GPU
from hipwright.task.device.inputs import Inputs, Told, is_fault, phase, spec_of
from hipwright.task.device.made_states import MadeStates, places, separate
from hipwright.task.device.model import DeviceFile, ModelCall, is_memory, moved_to
from hipwright.task.host import state as states
from hipwright.task.host.prepared import Token
from hipwright.task.host.reference import ReferenceModel
from hipwright.task.host.together import fill
from hipwright.tensors import HostTensor, Tree
from hipwright.torchio import from_torch, map_torch, to_torch, tree_to_torch

KEPT_SHARE = 8
"""States, and models set to one, may each take this part of the memory of the device, or of the machine on the CPU."""
SHARED_PARTS = 2
"""Likewise of the share of a process beside other tasks."""


class HeldRuns(Inputs):
    """The service's second part: state tables, and runs on held ones (`hipwright.held`)."""

    def __init__(self, init: dict[str, Any]) -> None:
        super().__init__(init)
        self._states: dict[int, Tree] = {}
        room = self._kept_bytes()
        self._made = MadeStates(self.file, room)
        self._runs = _DeviceRuns(self.file, room)

    def state(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Stores a state table under a number. header["held"]: the recipe of its parameters, None where it has them."""
        self._states[header["state"]] = {**bundle, "held": header["held"]}
        return {}, None

    def held_init(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"separate": whether its parameters can be held}, and the table of a recipe, with specs for parameters."""
        phase("Model(...)")
        table = self._made.get(header["recipe"])
        seen: dict[int, Any] = {}
        buffers = {path: from_torch(tensor, seen) for path, tensor in table["buffers"].items()}
        params = {path: spec_of(tensor) for path, tensor in table["params"].items()}
        return {"separate": separate(table["params"])}, {**table, "params": params, "buffers": buffers}

    def held_params(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"places": by path}, and a spec for each of a recipe's parameters."""
        phase("Model(...)")
        params = self._made.get(header["recipe"])["params"]
        return {"places": places(params)}, {path: spec_of(tensor) for path, tensor in params.items()}

    def held_bytes(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Bytes of one parameter's span, as `fetch` sends them; all of them without header["bytes"]."""
        raw = span(self._made.get(header["recipe"])["params"][header["path"]])
        if "bytes" in header:
            return self._sent(raw, header)
        return {}, HostTensor("uint8", (raw.numel(),), (1,), 0, raw.cpu().numpy())

    def held_run(self, header: dict[str, Any], bundle: Tree) -> Told:
        """As `TaskHost.run`, on bundle = [inputs, buffers] and the parameters of header["recipe"]."""
        phase("forward")
        inputs, buffers = bundle
        how = {name: value for name, value in header.items() if name != "recipe"}
        state = {**self._made.get(header["recipe"]), "buffers": buffers}
        return {}, list(self._runs.run(inputs, state, token=key_of(header["recipe"]), **how))

    def refusal(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"why": what the module raises on the inputs `bundle` and the state header["state"] here, "" where it runs}.

        The inputs lie as far from addresses of 256 bytes as they do where a candidate gets them (`moved_to`).
        """
        phase("forward")
        args = map_torch(tree_to_torch(bundle), lambda tensor: moved_to(tensor, self.device))
        model = self.file.model(self._table(header["state"]))
        try:
            ModelCall(self.file, model, args)
        except TaskError as error:
            if is_memory(error) or is_fault(error.__cause__):
                raise
            return {"why": error.message}, None
        return {"why": ""}, None

    def _table(self, number: int) -> Tree:
        """The state table of a number, with torch tensors for held parameters."""
        state = self._states[number]
        if state["held"] is None:
            return state
        return {**state, "params": self._made.get(state["held"])["params"]}

    def _kept_bytes(self) -> int:
        if not self._gpu:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // KEPT_SHARE
        if self._share:
            return self._share // SHARED_PARTS
        return (self._limit or int(torch.cuda.get_device_properties(self.device).total_memory)) // KEPT_SHARE


class _DeviceRuns(ReferenceModel):
    """The reference on the device."""

    def __init__(self, file: DeviceFile, kept_bytes: int) -> None:
        self.kept_bytes = kept_bytes
        super().__init__(file.file)
        self._device_file = file

    def model(self, state: Tree | None = None) -> torch.nn.Module:
        """A new model on the device, set to a state table."""
        return self._device_file.model(state)

    def begin(self, token: Token | None, state: Tree, exact: bool) -> torch.nn.Module:
        """The model of one run, with the state's own buffers: models are found again by their parameters."""
        model = super().begin(token, state, exact)
        given = [(tensor, state["buffers"][path]) for path, tensor in states.buffers(model) if path in state["buffers"]]
        with torch.no_grad():
            fill([tensor for tensor, _ in given], [to_torch(value) for _, value in given])
        return model

    def placed(self, args: Any) -> Any:
        """The arguments on the device."""
        return map_torch(args, lambda tensor: moved_to(tensor, self._device_file.device))

    def around(self) -> AbstractContextManager[Any]:
        """The device as the default one."""
        device: AbstractContextManager[Any] = self._device_file.device
        return device

    def generators(self) -> tuple[bytes, tuple[Any, ...]]:
        """With the state of the device's generator among torch's."""
        own, host = super().generators()
        device = self._device_file.device
        if device.type == TORCH_GPU:
            own += torch.cuda.get_rng_state(device).numpy().tobytes()
        return own, host
