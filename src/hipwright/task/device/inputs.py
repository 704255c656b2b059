"""The device host's inputs, and its translation of failures. Runs in the device host."""

from __future__ import annotations

import gc
import json
from collections import OrderedDict
from types import MethodType
from typing import Any

import numpy as np
import torch

from hipwright.device.placement import page_aligned
from hipwright.digest import digest, span
from hipwright.errors import DeviceError, HipwrightError, TaskError
from hipwright.records import TensorSpec
from hipwright.sandbox import crash_page, given_fd
from hipwright.targets import TORCH_GPU
from hipwright.task.device import draw as device_draw
from hipwright.task.device.bridges import Bridges
from hipwright.task.device.compare import blocks_of
from hipwright.task.device.expect import DeviceExpectation
from hipwright.task.device.model import DeviceFile, ModelCall, is_memory
from hipwright.task.device.stream import StreamBuffer
from hipwright.task.host.draw import wide
from hipwright.task.host.reference import named_leaves
from hipwright.tensors import BITS, Tree
from hipwright.torchio import NAMES, map_torch

_SHARE = 0.9  # of the free memory of the device
_NO_LIMIT = 1 << 62
STALE = 8
"""Expectations made since one was used, after which it is the first to be freed."""

Told = tuple[dict[str, Any], Tree]


class Inputs:
    """The service's first part: the file, the device's memory, draws and their chunks."""

    def __init__(self, init: dict[str, Any]) -> None:
        self.device = torch.device(init["device"])
        self._gpu = self.device.type == TORCH_GPU
        self._limit = int(init.get("memory_limit_bytes") or 0)
        self._share = int(init.get("share_bytes") or 0)
        phase("running the file")
        self.file = self._guard(lambda: DeviceFile(init["name"], init["source"], self.device))
        self._draws: OrderedDict[str, list[Any]] = OrderedDict()
        self._cases: dict[int, DeviceExpectation] = {}
        self._made_cases = 0
        self._used: dict[int, int] = {}  # how many had been made when one was used, by case
        self._current = 0  # the case that is being computed
        self._staging = StreamBuffer(self.device)
        self._bridges = Bridges(self.device)

    def __getattribute__(self, name: str) -> Any:
        """Public methods, with failures of the device translated by `_guard`."""
        found = object.__getattribute__(self, name)
        if name.startswith("_") or not isinstance(found, MethodType):
            return found
        return lambda header, bundle: self._guard(lambda: found(header, bundle))

    def _guard(self, fn: Any) -> Any:
        """fn(); a fault of the device becomes a DeviceError, one that the task's code causes stays a TaskError."""
        try:
            return fn()
        except (HipwrightError, RuntimeError) as error:
            cause = error if isinstance(error, RuntimeError) else error.__cause__
            if is_memory(cause):
                told = self._memory()
                torch.cuda.empty_cache()
                raise TaskError(
                    f"not enough device memory: {str(cause)[:300]}",
                    hint="use a device with more memory",
                    evidence={"out_of_memory": told},
                ) from error
            if not is_fault(cause):
                raise
            if "device-side assert" in str(cause):  # such as an index out of range in the file's own code
                raise TaskError(
                    f"the task fails on the device: {str(cause)[:300]}", evidence={"broken": True}
                ) from error
            raise DeviceError(f"{self.device}: {str(cause)[:300]}") from error

    def _memory(self) -> dict[str, int]:
        """Bytes of the device: {"own": of this process's tensors at the most, "others": of other processes now}."""
        free, total = torch.cuda.mem_get_info(self.device)
        own = torch.cuda.memory_reserved(self.device)
        return {"own": torch.cuda.max_memory_allocated(self.device), "others": max(0, total - free - own)}

    def _empty(self) -> None:
        if self._gpu:
            torch.cuda.empty_cache()

    def _room(self) -> int:
        """Bytes that are available on the device."""
        bounds = [bound for bound in (self._limit, self._share) if bound]
        if not self._gpu:
            return min(bounds, default=_NO_LIMIT)
        self._empty()
        held, free = torch.cuda.memory_allocated(self.device), torch.cuda.mem_get_info(self.device)[0]
        return int(min([_SHARE * free, *(bound - held for bound in bounds)]))

    def _make_room(self, wanted: int, keep: str = "") -> None:
        """Frees what can be computed again until `wanted` bytes are available: draws, the oldest first, then
        expectations: of no use any more, then the last used. Each candidate is judged by the same few in the same
        order, and where one has no room the oldest would be the next that is needed, each time.
        """
        if self._room() >= wanted:
            return
        gc.collect()  # a finished expectation refers to itself through its frames, and keeps its inputs
        for key in [key for key in self._draws if key != keep]:
            if self._room() >= wanted:
                return
            del self._draws[key]
        for case in sorted(self._cases.keys() - {self._current}, key=self._freed_first):
            if self._room() >= wanted:
                return
            del self._cases[case]

    def _freed_first(self, case: int) -> tuple[bool, int, int]:
        used = self._used[case]
        stale = used + STALE <= self._made_cases
        return (False, used, case) if stale else (True, -used, -case)

    def _keep(self, case: int, made: DeviceExpectation) -> None:
        """Keeps an expectation that was just made."""
        self._made_cases += 1
        self._cases[case], self._used[case] = made, self._made_cases

    def allow(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Sets the bytes that this process may keep beside other tasks; frees what is above them and can be."""
        self._share = int(header["bytes"])
        self._make_room(0)
        self._empty()
        return {}, None

    # ---------------------------------------------------------------- inputs

    def _inputs(self, header: dict[str, Any]) -> list[Any]:
        """The arguments, drawn again where they were freed. Large ones free others."""
        key = key_of(header)
        if key not in self._draws:
            phase("get_inputs()")
            self._make_room(2 * sum(_bytes(spec) for spec in header["workload"]["specs"]))
            self._draws[key] = page_aligned(device_draw.inputs(self.file, header))
        self._draws.move_to_end(key)
        return self._draws[key]

    def _leaf(self, header: dict[str, Any]) -> list[torch.Tensor]:
        return [tensor for _, tensor in named_leaves("", self._inputs(header))]

    def _drop(self, header: dict[str, Any]) -> None:
        """Frees one draw, which was written to or whose memory is needed."""
        self._draws.pop(key_of(header), None)

    def arguments(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"sizes": bytes of each leaf's span}, and the arguments with specs for tensors."""
        sizes = [span(tensor).numel() for tensor in self._leaf(header)]
        return {"sizes": sizes}, map_torch(self._inputs(header), spec_of)

    def digests(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"digests": one for each tensor leaf, as text, under the draw's seed}."""
        return {"digests": [str(digest(tensor, header["seed"])) for tensor in self._leaf(header)]}, None

    def fetch(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Some bytes of a leaf's span, in the reply or through the bridge header["bridge"]."""
        return self._sent(span(self._leaf(header)[header["leaf"]]), header)

    def bridge(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"mapped"}: whether the memory behind the call's descriptor is bridge header["bridge"] now; unmaps "done"."""
        return {"mapped": self._bridges.map(header["bridge"], header["bytes"], given_fd(), header["done"])}, None

    def _sent(self, raw: torch.Tensor, header: dict[str, Any]) -> Told:
        """header["bytes"] bytes from header["offset"] on."""
        raw = raw[header["offset"] : header["offset"] + header["bytes"]]
        if "bridge" not in header:
            return {}, self._staging.out(raw)
        self._bridges.put(header["bridge"], raw)
        return {}, None

    def nonfinite(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"shares": of NaN and Inf among the float outputs for each of header["drawn"]; 2 where forward raises}."""
        drawn = header["drawn"]
        if device_draw.low(self._leaf(drawn[0])) < 0:
            return {"shares": [0.0] * len(drawn)}, None
        phase("forward")
        return {"shares": [self._nonfinite(one) for one in drawn]}, None

    def _nonfinite(self, header: dict[str, Any]) -> float:
        try:
            call = ModelCall(self.file, self.file.model(), self._inputs(header))
        except TaskError as error:
            if is_fault(error.__cause__) or is_memory(error):
                raise
            return 2.0
        floats = [wide(tensor).reshape(-1) for _, tensor in call.leaves() if tensor.is_floating_point()]
        wrong = sum(int((~block.isfinite()).sum()) for tensor in floats for block in blocks_of(tensor))
        return float(wrong / max(sum(tensor.numel() for tensor in floats), 1))


def key_of(header: dict[str, Any]) -> str:
    """The key of one draw."""
    return json.dumps([header["workload"]["name"], *(header[k] for k in ("seed", "family", "restricted", "slot"))])


def _bytes(spec: dict[str, Any]) -> int:
    return int(np.prod(spec["shape"], dtype=np.int64)) * BITS[spec["dtype"]].itemsize


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """A tensor's shape, dtype and strides."""
    return TensorSpec(dtype=NAMES[tensor.dtype], shape=tuple(tensor.shape), stride=tuple(tensor.stride()))


def is_fault(cause: BaseException | None) -> bool:
    """Whether an exception is the device's error, after which its context cannot be used."""
    if is_memory(cause):
        return False
    return isinstance(cause, getattr(torch, "AcceleratorError", ())) or "CUDA error" in str(cause or "")


def phase(name: str) -> None:
    """Records the current phase for the parent, in case this process dies or hangs."""
    note = json.dumps({"phase": name}).encode() + b"\0"
    crash_page()[: len(note)] = note
