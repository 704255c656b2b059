"""The device host: the one process of a GPU that runs a task file's own code there (docs/tasks.md).

It makes inputs, knows what outputs should be, compares, and runs the baselines. No candidate's code ever runs here and
no expectation leaves it. Whole tensors never enter host memory: they leave and come in chunks.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hipwright.digest import digest, span
from hipwright.errors import DeviceError, HipwrightError, TaskError
from hipwright.records import TensorSpec
from hipwright.sandbox import crash_page, lockdown
from hipwright.task import device_ceilings, device_draw
from hipwright.task.device_compare import Check, best_constant, blocks_of, constant_blocks, passes
from hipwright.task.device_expect import Case, Expecting
from hipwright.task.device_leaf import Leaf
from hipwright.task.device_model import Call, DeviceFile
from hipwright.task.device_side import ModelSide, flags
from hipwright.task.device_stream import Incoming, Staging
from hipwright.task.reference import map_torch, named_leaves
from hipwright.tensors import BITS, Tree
from hipwright.torchio import NAMES

_SHARE = 0.9  # of what is free on the device
_NO_LIMIT = 1 << 62
_CPU_CACHE = 32 << 20  # assumed where the device does not tell

Told = tuple[dict[str, Any], Tree]


class DeviceHost:
    """Service of the sandbox. init: {"name", "source", "device": "cuda:0" or "cpu", "memory_limit_bytes": 0 = free}.

    Methods take and return (header, bundle) as the sandbox has it; `verify.reference` documents what they mean.
    """

    def __init__(self, init: dict[str, Any], bundle: Tree) -> None:
        self.device = torch.device(init["device"])
        self._gpu = self.device.type == "cuda"
        if not self._gpu:
            lockdown("task")
        self._limit = int(init.get("memory_limit_bytes") or 0)
        _phase("running the file")
        self.file = self._guard(lambda: DeviceFile(init["name"], init["source"], self.device))
        self._draws: OrderedDict[str, list[Any]] = OrderedDict()
        self._cases: dict[int, Case] = {}
        self._checks: dict[int, list[Incoming]] = {}
        self._states: dict[int, Tree] = {}
        self._sides: dict[int, ModelSide] = {}
        self._staging = Staging(self.device)
        self._pool: Any = None

    def __getattribute__(self, name: str) -> Any:
        """Public methods with the device's failures told as such."""
        found = object.__getattribute__(self, name)
        if name.startswith("_") or not callable(found):
            return found
        return lambda header, bundle: self._guard(lambda: found(header, bundle))

    def _guard(self, fn: Any) -> Any:
        """fn(); a fault of the device becomes a DeviceError, one that the task's code provokes stays a TaskError."""
        try:
            return fn()
        except (HipwrightError, RuntimeError) as error:
            cause = error if isinstance(error, RuntimeError) else error.__cause__
            if isinstance(cause, torch.OutOfMemoryError):
                torch.cuda.empty_cache()
                raise TaskError(
                    f"not enough device memory: {str(cause)[:300]}", hint="use a device with more memory"
                ) from error
            if not _is_fault(cause):
                raise
            if "device-side assert" in str(cause):  # such as an index out of range in the file's own code
                raise TaskError(
                    f"the task fails on the device: {str(cause)[:300]}", evidence={"broken": True}
                ) from error
            raise DeviceError(f"{self.device}: {str(cause)[:300]}") from error

    # ---------------------------------------------------------------- the device

    def describe(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Name, identity and sizes of the device, versions, and the global flags after the file ran."""
        told: dict[str, Any] = {"device": str(self.device), "torch": torch.__version__, "flags": flags()}
        told |= {"name": "cpu", "uuid": "cpu", "driver": "", "llc_bytes": _CPU_CACHE, "memory_bytes": 0}
        if self._gpu:
            properties = torch.cuda.get_device_properties(self.device)
            told |= {
                "name": properties.name,
                "uuid": str(getattr(properties, "uuid", "")),
                "driver": f"{torch.version.cuda or torch.version.hip}",
                "llc_bytes": int(getattr(properties, "L2_cache_size", 0)) or _CPU_CACHE,
                "memory_bytes": properties.total_memory,
            }
        return told, None

    def memory(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"allocated", "reserved", "peak": bytes on the device, "host_peak": VmHWM in bytes}."""
        told = {"allocated": 0, "reserved": 0, "peak": 0}
        if self._gpu:
            told["allocated"] = torch.cuda.memory_allocated(self.device)
            told["reserved"] = torch.cuda.memory_reserved(self.device)
            told["peak"] = torch.cuda.max_memory_reserved(self.device)
        return {**told, "host_peak": _host_peak()}, None

    def ceilings(self, header: dict[str, Any], bundle: Tree) -> Told:
        """`device_ceilings.measure`, with nothing else on the device that is ours and can be made again."""
        _phase("measuring the device")
        self._draws.clear()
        self._empty()
        return device_ceilings.measure(self.device, self.describe({}, None)[0]["llc_bytes"]), None

    def free(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Drop "inputs", "expectations", "sides" or "all"."""
        what = header["what"]
        if what in ("sides", "all"):
            self._sides.clear()
            self._pool = None
        if what in ("expectations", "all"):
            self._cases.clear()
            self._checks.clear()
        if what in ("inputs", "all"):
            self._draws.clear()
        self._empty()
        return {}, None

    def _empty(self) -> None:
        if self._gpu:
            torch.cuda.empty_cache()

    def _room(self) -> int:
        """Bytes that may still be taken on the device."""
        if not self._gpu:
            return self._limit or _NO_LIMIT
        self._empty()
        held, free = torch.cuda.memory_allocated(self.device), torch.cuda.mem_get_info(self.device)[0]
        room = int(_SHARE * free)
        return min(room, self._limit - held) if self._limit else room

    # ---------------------------------------------------------------- inputs

    def _inputs(self, header: dict[str, Any]) -> list[Any]:
        """The arguments, drawn again where they were dropped. Others make room if they are large."""
        key = _key(header)
        if key not in self._draws:
            _phase("get_inputs()")
            specs = header["workload"]["specs"]
            wanted = 2 * sum(_bytes(spec) for spec in specs)
            while self._draws and self._room() < wanted:
                self._draws.popitem(last=False)
            self._draws[key] = device_draw.inputs(self.file, header)
        self._draws.move_to_end(key)
        return self._draws[key]

    def _leaf(self, header: dict[str, Any]) -> list[torch.Tensor]:
        return [tensor for _, tensor in named_leaves("", self._inputs(header))]

    def _drop(self, header: dict[str, Any]) -> None:
        """Forget one draw, which is no longer what it was or takes room."""
        self._draws.pop(_key(header), None)

    def arguments(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"sizes": bytes of each leaf's span}, and the arguments with specs for tensors."""
        sizes = [span(tensor).numel() for tensor in self._leaf(header)]
        return {"sizes": sizes}, map_torch(self._inputs(header), _spec)

    def digests(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"digests": one for each tensor leaf, as text, under the draw's seed}."""
        return {"digests": [str(digest(tensor, header["seed"])) for tensor in self._leaf(header)]}, None

    def fetch(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Some bytes of a leaf's span."""
        raw = span(self._leaf(header)[header["leaf"]])
        return {}, self._staging.out(raw[header["offset"] : header["offset"] + header["bytes"]])

    def nonfinite(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"shares": of NaN and Inf among the float outputs for each of header["drawn"]; 2 where forward raises}."""
        drawn = header["drawn"]
        if device_draw.low(self._leaf(drawn[0])) < 0:
            return {"shares": [0.0] * len(drawn)}, None
        _phase("forward")
        return {"shares": [self._nonfinite(one) for one in drawn]}, None

    def _nonfinite(self, header: dict[str, Any]) -> float:
        try:
            call = Call(self.file, self.file.model(), self._inputs(header))
        except TaskError as error:
            if _is_fault(error.__cause__):
                raise
            return 2.0
        floats = [tensor.reshape(-1) for _, tensor in call.leaves() if tensor.is_floating_point()]
        wrong = sum(int((~block.isfinite()).sum()) for tensor in floats for block in blocks_of(tensor))
        return float(wrong) / max(sum(tensor.numel() for tensor in floats), 1)

    # ---------------------------------------------------------------- expectations

    def state(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Keep a state table under a number."""
        self._states[header["state"]] = bundle
        return {}, None

    def run(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Make the expectation header["case"]; its leaves, and {"outputs", "buffers"} with specs for tensors."""
        drawn = header["drawn"]
        args = self._inputs(drawn)
        _phase("forward")
        making = Expecting(
            self.file,
            args,
            self._states[header["state"]],
            seed=drawn["seed"],
            room=self._room,
            spoil=lambda: self._drop(drawn),
        )
        case = making.make(strict=header["strict"])
        outputs, buffers = case.tree
        tree = {"outputs": map_torch(outputs, _spec), "buffers": map_torch(buffers, _spec)}
        case.tree = None
        if case.mutated:
            self._drop(drawn)
        self._cases[header["case"]] = case
        told = {
            "leaves": [_describe(leaf) for leaf in case.leaves],
            "aliases": case.aliases,
            "random": case.random,
            "mutated": case.mutated,
            "reference": case.reference,
            "moved": case.moved,
            "notes": case.notes,
            "seconds": case.seconds,
            "bytes_out": case.bytes_out,
            "unchanged": [leaf.path for leaf in case.leaves if not leaf.evidence],
        }
        del making, outputs, buffers
        self._empty()
        return told, tree

    def budgets(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Settle every leaf of a case by its numbers."""
        leaves = self._cases[header["case"]].leaves
        return {"shares": [leaf.settle(n) for leaf, n in zip(leaves, header["budgets"], strict=True)]}, None

    def lint(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"passes": what undeserving outputs pass each leaf that is evidence} (`verify.device_budget.degenerate`)."""
        _phase("forward")
        evidence = [leaf for leaf in self._cases[header["case"]].leaves if leaf.evidence and leaf.numel]
        sources = self._leaf(header["drawn"])
        told = [self._blind(leaf, sources) for leaf in evidence]
        del sources
        strangers = self._strangers(header) if evidence else {}
        for leaf, found in zip(evidence, told, strict=True):
            other = strangers.get(leaf.path)
            same = other is not None and tuple(other.shape) == leaf.shape and other.dtype == leaf.dtype
            found["stranger"] = same and passes(leaf, blocks_of(other))
        return {"passes": told}, None

    def _blind(self, leaf: Leaf, sources: list[torch.Tensor]) -> dict[str, Any]:
        alike = [s for s in sources if s.numel() == leaf.numel and s.is_floating_point() != leaf.exact]
        alike = [s if not leaf.exact else s.to(leaf.dtype) for s in alike]
        return {
            "blind": leaf.judged is not None and not bool(leaf.judged.any()),
            "zeros": passes(leaf, constant_blocks(leaf, 0)),
            "constant": passes(leaf, constant_blocks(leaf, best_constant(leaf))),
            "single": leaf.numel == 1,
            "identity": any(passes(leaf, blocks_of(source)) for source in alike),
        }

    def _strangers(self, header: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The baseline's outputs for other inputs, by path; none where it refuses them."""
        try:
            call = Call(self.file, self.file.model(self._states[header["state"]]), self._inputs(header["other"]))
        except TaskError as error:
            if _is_fault(error.__cause__):
                raise
            return {}
        finally:
            self._drop(header["other"])
        return dict(call.leaves())

    # ---------------------------------------------------------------- comparison

    def compare_begin(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Start to compare a case with tensors of header["strides"], one for each leaf; without buffers, which come
        last, the outputs alone."""
        leaves = self._cases[header["case"]].leaves
        pairs = zip(leaves, header["strides"], strict=False)
        self._checks[header["case"]] = [Incoming(Check(leaf), stride) for leaf, stride in pairs]
        return {}, None

    def compare_chunk(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Bytes of header["leaf"]'s span from header["offset"] on."""
        raw = self._staging.into(bundle)
        self._checks[header["case"]][header["leaf"]].add(header["offset"], raw)
        return {}, None

    def compare_end(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Bundle back: {"leaves": results}."""
        return {}, {"leaves": [incoming.result() for incoming in self._checks.pop(header["case"])]}

    # ---------------------------------------------------------------- baselines

    def side(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Open a side: {"notes"}, or {"missing": why} where torch.compile does not compile the model."""
        compiled = header["name"] == "compile"
        _phase("torch.compile" if compiled else "forward")
        slots = [self._inputs(drawn) for drawn in header["drawn"]]
        state = self._states[header["state"]]
        if self._gpu and self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        try:
            side = ModelSide(self.file, state, slots, compiled=compiled, graph=header["graph"], pool=self._pool)
        except TaskError as error:
            if not compiled or _is_fault(error.__cause__):
                raise
            return {"missing": error.message[:500]}, None
        self._sides[header["side"]] = side
        return {"notes": side.notes}, None

    def side_prepare(self, header: dict[str, Any], bundle: Tree) -> Told:
        """`Side.prepare`."""
        return self._sides[header["side"]].prepare(header["calls"]), None

    def side_stream(self, header: dict[str, Any], bundle: Tree) -> Told:
        """`Side.stream`."""
        self._sides[header["side"]].stream(header["why"])
        return {}, None

    def side_block(self, header: dict[str, Any], bundle: Tree) -> Told:
        """`Side.block`."""
        return self._sides[header["side"]].block(header["calls"]), None

    def side_latency(self, header: dict[str, Any], bundle: Tree) -> Told:
        """`Side.latency`."""
        return {"ms": self._sides[header["side"]].latency(header["calls"])}, None

    def side_close(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Drop a side."""
        self._sides.pop(header["side"], None)
        self._empty()
        return {}, None


def _key(header: dict[str, Any]) -> str:
    return json.dumps([header["workload"]["name"], *(header[k] for k in ("seed", "family", "restricted", "slot"))])


def _bytes(spec: dict[str, Any]) -> int:
    return int(np.prod(spec["shape"], dtype=np.int64)) * BITS[spec["dtype"]].itemsize


def _spec(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(dtype=NAMES[tensor.dtype], shape=tuple(tensor.shape), stride=tuple(tensor.stride()))


def _describe(leaf: Leaf) -> dict[str, Any]:
    return {"path": leaf.path, "dtype": NAMES[leaf.dtype], "shape": list(leaf.shape), "float": not leaf.exact}


def _is_fault(cause: BaseException | None) -> bool:
    """Whether an exception is the device's error, after which its context is of no more use."""
    if isinstance(cause, torch.OutOfMemoryError):
        return False
    return isinstance(cause, getattr(torch, "AcceleratorError", ())) or "CUDA error" in str(cause or "")


def _host_peak() -> int:
    with Path(f"/proc/{os.getpid()}/status").open() as file:
        line = next((line for line in file if line.startswith("VmHWM")), "VmHWM 0 kB")
    return int(line.split()[1]) << 10


def _phase(name: str) -> None:
    """Leave word of what we are at, for the parent to read if we never come back."""
    note = json.dumps({"phase": name}).encode() + b"\0"
    crash_page()[: len(note)] = note
