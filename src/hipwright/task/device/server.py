"""The device host: the one process of a GPU that runs a task file's own code there (docs/tasks.md).

It draws inputs, holds expectations, compares, and runs the baselines. It runs no candidate's code, and no expectation
leaves it. Whole tensors never enter host memory: they are sent and received in chunks.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import torch

from hipwright.device.graph_pool import GraphPool
from hipwright.errors import TaskError
from hipwright.sandbox import lockdown
from hipwright.task.device import ceilings as device_ceilings
from hipwright.task.device import draw as device_draw
from hipwright.task.device.cases import Cases
from hipwright.task.device.inputs import Told, is_fault, key_of, phase
from hipwright.task.device.side import COMPILED, CopySide, ModelSide, Turning, flags
from hipwright.tensors import Tree
from hipwright.torchio import with_copies

_CPU_CACHE = 32 << 20  # assumed where the device does not report it


class DeviceHost(Cases):
    """Service of the sandbox. init: {"name", "source", "device": "cuda:0" or "cpu", "memory_limit_bytes": 0 = free,
    "share_bytes": that it may keep beside other tasks, 0 = all, "last_level_bytes": of the architecture's last cache,
    0 = as torch says, "simulated": the name of a GPU that is software, "" for none}.

    Methods take and return (header, bundle) as the sandbox has it; `verify.gpu.reference` documents them.
    """

    def __init__(self, init: dict[str, Any], bundle: Tree) -> None:
        if init["device"] != "cpu":
            torch.zeros(1, device=init["device"])  # starts the driver before the file's code runs
        _bound(init)
        # torch.compile starts compilers, which only a GPU's host may do
        lockdown("task" if init["device"] == "cpu" else "tools")
        super().__init__(init)
        self._sides: dict[int, Turning] = {}
        self._pool = GraphPool(init["device"])
        self._last_level = int(init.get("last_level_bytes") or 0)
        self._simulated = str(init.get("simulated") or "")
        gc.freeze()  # what the file imports stays, and is not looked through after every few copies of its model

    # ---------------------------------------------------------------- the device

    def describe(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Name, identity and sizes of the device, versions, and the global flags after the file ran."""
        reply: dict[str, Any] = {"device": str(self.device), "torch": torch.__version__, "flags": flags()}
        reply |= {"name": "cpu", "uuid": "cpu", "driver": "", "llc_bytes": _CPU_CACHE, "memory_bytes": 0}
        if self._gpu:
            properties = torch.cuda.get_device_properties(self.device)
            reply |= {
                "name": properties.name,
                "uuid": str(getattr(properties, "uuid", "")),
                "driver": _driver(),
                "llc_bytes": int(getattr(properties, "L2_cache_size", 0)) or _CPU_CACHE,
                "memory_bytes": properties.total_memory,
            }
        reply["llc_bytes"] = max(reply["llc_bytes"], self._last_level)
        if self._simulated:
            reply |= {"name": self._simulated, "uuid": "simulated", "llc_bytes": 0}
        return reply, None

    def memory(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"allocated", "reserved", "peak": bytes on the device, "host_peak": VmHWM in bytes}."""
        reply = {"allocated": 0, "reserved": 0, "peak": 0}
        if self._gpu:
            reply["allocated"] = torch.cuda.memory_allocated(self.device)
            reply["reserved"] = torch.cuda.memory_reserved(self.device)
            reply["peak"] = torch.cuda.max_memory_reserved(self.device)
        return {**reply, "host_peak": _host_peak()}, None

    def ceilings(self, header: dict[str, Any], bundle: Tree) -> Told:
        """`task.device.ceilings.measure`, after freeing everything on the device that can be computed again."""
        phase("measuring the device")
        self._draws.clear()
        self._empty()
        return device_ceilings.measure(self.device, self.describe({}, None)[0]["llc_bytes"]), None

    def free(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Frees "inputs", "expectations", "sides" or "all"."""
        what = header["what"]
        if what in ("sides", "all"):
            self._sides.clear()
            self._pool.release()
        if what in ("expectations", "all"):
            self._cases.clear()
            self._checks.clear()
        if what in ("inputs", "all"):
            self._draws.clear()
        if what == "all":
            self._made.clear()
        gc.collect()  # see `_make_room`
        self._empty()
        return {}, None

    # ---------------------------------------------------------------- baselines

    def side(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Opens a side: {"notes"}, or {"missing": why} where torch.compile does not compile the model.

        The side "copy" moves header["moved"] bytes and runs nothing of the task.
        """
        mode = header["name"]
        if mode == "copy":
            copy = CopySide(header["moved"], len(header["drawn"]), self.device, graph=header["graph"])
            self._sides[header["side"]] = copy
            return {"notes": copy.notes}, None
        compiled = mode in COMPILED
        phase("torch.compile" if compiled else "forward")
        written = header.get("written") or ()  # calls in a row write to copies, so that the draws stay as they are
        slots = [with_copies(self._inputs(drawn), written) for drawn in header["drawn"]]
        state = self._table(header["state"])
        pool = self._pool.handle() if self._gpu else None
        try:
            side = ModelSide(self.file, state, slots, mode=mode, graph=header["graph"], pool=pool)
        except TaskError as error:
            if not compiled or is_fault(error.__cause__):
                raise
            return {"missing": error.message[:500]}, None
        self._sides[header["side"]] = side
        return {"notes": side.notes}, None

    def side_renew(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Gives the sides header["sides"], opened on header["old"], the inputs header["new"] and another state in
        place; the new draws then lie where the old ones did.

        {"renewed": False} where new inputs lie otherwise in memory: the sides must be opened again.
        """
        phase("get_inputs()")
        sides = [side for number in header["sides"] if isinstance(side := self._sides.get(number), ModelSide)]
        for place, (old, new) in enumerate(zip(header["old"], header["new"], strict=True)):
            fresh = device_draw.inputs(self.file, new)
            if not all(side.renewable(place, fresh) for side in sides):
                return {"renewed": False}, None
            for side in sides:
                side.renew(place, fresh)
            self._draws.pop(key_of(old), None)
            own = bool(header.get("written")) or not sides
            self._draws[key_of(new)] = fresh if own else sides[0].slots[place]
        for side in sides:
            side.set_state(self._table(header["state"]))
        return {"renewed": True}, None

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


def _driver() -> str:
    """The version of the kernel module, where it is reported, and of the runtime."""
    found = [path for name in ("nvidia", "amdgpu") if (path := Path(f"/sys/module/{name}/version")).is_file()]
    return " ".join([*(path.read_text().strip() for path in found[:1]), str(torch.version.cuda or torch.version.hip)])


def _host_peak() -> int:
    with Path(f"/proc/{os.getpid()}/status").open() as file:
        line = next((line for line in file if line.startswith("VmHWM")), "VmHWM 0 kB")
    return int(line.split()[1]) << 10


def _bound(init: dict[str, Any]) -> None:
    """Limits torch's memory; at the limit it returns cached memory before it allocates more."""
    limit = int(init.get("memory_limit_bytes") or 0)
    if limit and init["device"] != "cpu":
        total = torch.cuda.mem_get_info(init["device"])[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), init["device"])
