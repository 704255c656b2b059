"""The candidate's process on a GPU target, which serves one program after another. Imports torch.

It holds inputs and parameters, never an expectation. On a GPU a program has no host code; with the driver "cpu" the
same service runs the cpu target's build. After a fault of the device every reply has `broken`, and the parent replaces
the process.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

import hipwright.verify.worker.warm  # noqa: F401  # what plans import late is imported once, in the zygote
from hipwright.device.graph_pool import GraphPool
from hipwright.device.open import open_driver
from hipwright.digest import digests
from hipwright.errors import CandidateError
from hipwright.program.lower.trace import trace
from hipwright.sandbox import lockdown
from hipwright.targets import TARGETS
from hipwright.tensors import HostTensor, Tree
from hipwright.torchio import map_torch, with_copies
from hipwright.verify.gpu.bridge.worker_end import WorkerEnd, part
from hipwright.verify.gpu.calls import CandidateCalls
from hipwright.verify.gpu.resident_inputs import InputSlot, ResidentInputs, find_writes
from hipwright.verify.gpu.state_tables import StateTables
from hipwright.verify.gpu.subject_factory import LoadedCandidate, SubjectFactory, device_memory, faults, parsed_text
from hipwright.verify.gpu.subjects import BackgroundLoad, free_unused_memory, spec_of, start_gpu
from hipwright.verify.gpu.timing import SubjectTimer
from hipwright.verify.worker.deterministic import library_algorithms
from hipwright.verify.worker.staging import PinnedStaging
from hipwright.verify.worker.trees import on_device, tensors_of
from hipwright.verify.worker.watched import RunSetting, WatchedCandidate

Answer = tuple[dict[str, Any], Tree]


class GpuWorker:
    """Service of a worker session.

    init: device ("cuda:0", "cpu"), driver (the name of a target), memory_limit_bytes (0: a GPU's usual share), and of
    the driver "cpu" wave and launch_limit_s.
    """

    def __init__(self, init: dict[str, Any], _: Tree) -> None:
        self.device = str(init["device"])
        self.on_gpu = self.device != "cpu"
        limit = int(init.get("memory_limit_bytes", 0))
        driver = None if TARGETS.is_host(init["driver"]) else open_driver(str(init["driver"]), _index(self.device))
        self._states = StateTables(self.device)
        self._programs: dict[int, LoadedCandidate] = {}
        self._sets = ResidentInputs(self.device)
        self._bridge = WorkerEnd(self.device)
        self._staging = PinnedStaging(self.device) if self.on_gpu else None
        self._pool = GraphPool(self.device) if self.on_gpu else None
        self._count = 0
        self._runs = CandidateCalls(self._states, BackgroundLoad(self.device).make if self.on_gpu else None)
        if self.on_gpu:
            limit = start_gpu(self.device, limit)
        self._maker = SubjectFactory(init, driver, limit)
        lockdown(init.get("profile", "gpu") if self.on_gpu else "candidate")

    def pulse(self, header: dict[str, Any], _: Tree) -> Answer:
        """{} once the device has run a trivial kernel."""
        with faults(None, self.on_gpu):
            torch.zeros(1, device=self.device).add_(1.0).item()
        return {}, None

    # ---------------------------------------------------------------- programs

    def load(self, header: dict[str, Any], bundle: Tree) -> Answer:
        """Loads a candidate -> {"program"}, or {"stale": True} where the state table must be sent again.

        header: lane (the candidate form), text, knobs, mode ("run", "noop"), state (the table's key), so (path, driver
        "cpu"), and the arguments of `modelnew.run.load` for a ModelNew file. bundle: {"code": uint8 tensor or None,
        "table": state table, None when the key is known}.
        """
        with faults(None, self.on_gpu):
            table = self._states.get(str(header["state"]), bundle["table"])
            if table is None:
                return {"stale": True}, None
            code = bundle["code"].storage.tobytes() if bundle["code"] is not None else b""
            program = header["lane"] == "program"
            live = WatchedCandidate(
                lambda setting, state: self._maker.subject(loaded, setting, state), table, self.device, self._staging
            )
            loaded = LoadedCandidate(live, parsed_text(header["text"]) if program else None, code, header)
            loaded.live.prepare(RunSetting.of(header))
            if self.on_gpu:
                torch.cuda.reset_peak_memory_stats(self.device)
            self._count += 1
            self._programs[self._count] = loaded
        return {"program": self._count}, None

    def memory(self, header: dict[str, Any], _: Tree) -> Answer:
        """`device_memory`; zeros without a GPU."""
        return device_memory() if self.on_gpu else {"own": 0, "reserved": 0, "others": 0}, None

    def state_open(self, header: dict[str, Any], table: Tree) -> Answer:
        """`StateTables.open`."""
        with faults(None, self.on_gpu):
            self._states.open(str(header["state"]), table, header["places"])
        return {}, None

    def state_fill(self, header: dict[str, Any], _: Tree) -> Answer:
        """Some bytes of a parameter's span, which are in the bridge."""
        where = str(header["state"]), str(header["path"]), int(header["offset"]), int(header["bytes"])
        with faults(None, self.on_gpu):
            self._bridge.take(self._states.part(*where))
        return {}, None

    def state_done(self, header: dict[str, Any], _: Tree) -> Answer:
        """`StateTables.done`."""
        with faults(None, self.on_gpu):
            self._states.done(str(header["state"]))
        return {}, None

    def unload(self, header: dict[str, Any], _: Tree) -> Answer:
        """Frees a candidate and all of its memory on the device."""
        loaded = self._programs.pop(int(header["program"]))
        launchers = loaded.launchers
        loaded.timers.clear()
        loaded.results.clear()
        del loaded
        gc.collect()  # a lowered plan refers to itself, and so keeps device memory
        for launcher in launchers:
            if hasattr(launcher, "close"):
                launcher.close()
        if self._pool is not None:
            launchers.clear()
            free_unused_memory(self.device, self._pool)
        return {}, None

    def run_many(self, header: dict[str, Any], given: Tree) -> Answer:
        """`CandidateCalls.many`."""
        return self._runs.many(self._programs[int(header["program"])], header, given)

    def operators(self, header: dict[str, Any], inputs: Tree) -> Answer:
        """{"ops"}: the library's operators in one call of a modelnew candidate, as OpTrace records them."""
        loaded = self._programs[int(header["program"])]
        with faults(loaded, self.on_gpu):
            _, ops = loaded.live.subject.inner.trace(*on_device(list(inputs), self.device))  # type: ignore[attr-defined]
            loaded.live.subject.settle()
        return {"ops": ops}, None

    def trace(self, header: dict[str, Any], bundle: Tree) -> Answer:
        """`hipwright.program.lower.trace` of a plan. bundle: [state table, inputs] with TensorSpecs for tensors."""
        loaded = self._programs[int(header["program"])]
        assert loaded.parsed is not None
        state, inputs = bundle
        knobs = {str(k): int(v) for k, v in loaded.init["knobs"].items()}
        return trace(loaded.parsed, knobs, state, inputs, meta=True), None

    def sequence(self, header: dict[str, Any], bundle: Tree) -> Answer:
        """`CandidateCalls.sequence`."""
        return self._runs.sequence(self._programs[int(header["program"])], header, bundle)

    # ---------------------------------------------------------------- resident inputs

    def set_stale(self, header: dict[str, Any], _: Tree) -> Answer:
        """{"stale": slots of a set that must be filled}."""
        with faults(None, self.on_gpu):
            return {"stale": self._sets.stale(str(header["set"]), int(header["slots"]))}, None

    def set_open(self, header: dict[str, Any], arguments: Tree) -> Answer:
        """Allocates one slot. arguments: forward's, a TensorSpec for each tensor."""
        with faults(None, self.on_gpu):
            self._sets.open(str(header["set"]), int(header["slot"]), arguments, int(header["seed"]))
        return {}, None

    def set_fill(self, header: dict[str, Any], chunk: HostTensor) -> Answer:
        """Some bytes of a leaf's span: the chunk, or header["bytes"] of the bridge."""
        with faults(None, self.on_gpu):
            where = str(header["set"]), int(header["slot"]), int(header["leaf"]), int(header["offset"])
            if chunk is not None:
                self._sets.fill(*where, chunk)
            else:
                self._bridge.take(self._sets.part(*where, int(header["bytes"])))
        return {}, None

    def bridge_open(self, header: dict[str, Any], _: Tree) -> Answer:
        """`WorkerEnd.open`."""
        return self._bridge.open(int(header["bytes"])), None

    def bridge_clear(self, header: dict[str, Any], _: Tree) -> Answer:
        """Clears what a result left in the bridge."""
        with faults(None, self.on_gpu):
            self._bridge.clear(int(header["bytes"]))
        return {}, None

    def set_done(self, header: dict[str, Any], _: Tree) -> Answer:
        """{"right"}: whether the slot's digests are those of the header (decimal strings, or None)."""
        given = header["digests"]
        digests = None if given is None else tuple(int(text) for text in given)
        with faults(None, self.on_gpu):
            return {"right": self._sets.done(str(header["set"]), int(header["slot"]), digests)}, None

    def set_audit(self, header: dict[str, Any], _: Tree) -> Answer:
        """{"changed": [[set, slot, leaf, "value" or "zone"]]} in all sets: everything that was written to."""
        with faults(None, self.on_gpu):
            return {"changed": self._sets.audit()}, None

    def set_free(self, header: dict[str, Any], _: Tree) -> Answer:
        """Frees a set."""
        self._sets.free(str(header["set"]))
        return {}, None

    def run_set(self, header: dict[str, Any], _: Tree) -> Answer:
        """One call on a slot -> (`run`'s info with the new handle, {"outputs", "buffers"} with TensorSpecs)."""
        loaded = self._programs[int(header["program"])]
        slot = self._sets.slot(str(header["set"]), int(header["slot"]))
        with faults(loaded, self.on_gpu), library_algorithms(header):
            loaded.live.prepare(RunSetting.of(header))
            info, outputs = loaded.live.call(slot.arguments)
            info["inputs_changed"] = _changed_leaves(slot)
            buffers = map_torch(loaded.live.subject.buffers, lambda tensor: tensor.clone())
            return self._keep(loaded, info, {"outputs": outputs, "buffers": buffers})

    def fetch(self, header: dict[str, Any], _: Tree) -> Answer:
        """Some bytes of the span of one tensor leaf of a result, in the reply or through the bridge."""
        loaded = self._programs[int(header["program"])]
        tensor = tensors_of(loaded.results[int(header["handle"])])[int(header["leaf"])]
        with faults(loaded, self.on_gpu):
            some = part(tensor, int(header["offset"]), int(header["bytes"]))
            if header.get("bridged"):
                self._bridge.put(some)
                return {}, None
            raw = some.cpu().numpy()
        return {}, HostTensor("uint8", (raw.size,), (1,), 0, raw)

    def result_digests(self, header: dict[str, Any], _: Tree) -> Answer:
        """{"digests"}: of every tensor leaf of a result, decimal strings, under header["seed"]."""
        loaded = self._programs[int(header["program"])]
        with faults(loaded, self.on_gpu):
            found = digests(tensors_of(loaded.results[int(header["handle"])]), int(header["seed"]))
        return {"digests": [str(number) for number in found]}, None

    def drop(self, header: dict[str, Any], _: Tree) -> Answer:
        """Frees a result."""
        self._programs[int(header["program"])].results.pop(int(header["handle"]), None)
        return {}, None

    # ---------------------------------------------------------------- timing

    def time_open(self, header: dict[str, Any], _: Tree) -> Answer:
        """A timer over all slots of a set -> {"timer"}. graph: try graphs; written: paths of inputs that calls write:
        they write to copies of their own, which the next call finds as the last one left them.
        """
        loaded = self._programs[int(header["program"])]
        written = header.get("written") or ()
        given = (self._sets.slot(str(header["set"]), n).arguments for n in range(int(header["slots"])))
        slots = [with_copies(arguments, written) for arguments in given]
        with faults(loaded, self.on_gpu):
            subject = self._maker.timed(loaded, header["mode"])
            self._count += 1
            own = loaded.parsed is not None
            pool = self._pool.handle() if self._pool is not None and own else None
            loaded.timers[self._count] = SubjectTimer(
                subject, slots, self.device, graph=bool(header["graph"]), tours=own, pool=pool
            )
        return {"timer": self._count}, None

    def time_prepare(self, header: dict[str, Any], _: Tree) -> Answer:
        """`SubjectTimer.prepare`."""
        with self._timing(header) as timer:
            return timer.prepare(int(header["hint"])), None

    def time_stream(self, header: dict[str, Any], _: Tree) -> Answer:
        """Uses no graphs from now on."""
        with self._timing(header) as timer:
            timer.stream(str(header["why"]))
        return {}, None

    def time_block(self, header: dict[str, Any], _: Tree) -> Answer:
        """`SubjectTimer.block`."""
        with self._timing(header) as timer:
            return timer.block(int(header["calls"])), None

    def time_latency(self, header: dict[str, Any], _: Tree) -> Answer:
        """`SubjectTimer.latency`."""
        with self._timing(header) as timer:
            return {"ms": timer.latency(int(header["calls"]))}, None

    def time_reveal(self, header: dict[str, Any], _: Tree) -> Answer:
        """A slot has been given new values: poisons the outputs' memory, and keeps outputs from now on. restart: as
        `SubjectTimer.restart`, with the table's buffers.
        """
        with self._timing(header) as timer:
            timer.poison(int(header["poison"]))
            if header["restart"]:
                timer.restart(self._programs[int(header["program"])].live.table["buffers"])
        return {}, None

    def time_output(self, header: dict[str, Any], _: Tree) -> Answer:
        """The outputs of the last timed call on a slot, as `run_set` returns them (buffers as after many calls)."""
        loaded = self._programs[int(header["program"])]
        with self._timing(header) as timer:
            outputs = timer.outputs(int(header["slot"]))
            slot = self._sets.slot(str(header["set"]), int(header["slot"]))
            info = {"stats": [], "aliases": [], "inputs_changed": _changed_leaves(slot)}
            info["params_changed"] = loaded.live.params_changed(timer.subject)
            return self._keep(loaded, info, {"outputs": outputs, "buffers": {}})

    # ---------------------------------------------------------------- inside

    def _keep(self, loaded: LoadedCandidate, info: dict[str, Any], result: dict[str, Any]) -> Answer:
        self._count += 1
        loaded.results[self._count] = result
        try:
            specs = map_torch(result, lambda tensor: spec_of(tensor, self.device))
        except TypeError as error:
            raise CandidateError(
                f"the program returns what cannot be compared: {error}", status="bad_output_spec"
            ) from error
        return {**info, "handle": self._count}, specs

    @contextmanager
    def _timing(self, header: Mapping[str, Any]) -> Iterator[SubjectTimer]:
        loaded = self._programs[int(header["program"])]
        with faults(loaded, self.on_gpu):
            yield loaded.timers[int(header["timer"])]


def _changed_leaves(slot: InputSlot) -> list[int]:
    """Leaves of a slot that were written to. Raises CandidateError for a write next to one."""
    ((strays, changed),) = find_writes([slot])
    if strays:
        raise CandidateError(
            f"a write outside input {strays[0]}",
            status="out_of_bounds",
            stage="launch",
            evidence={"argument": strays[0], "kind": "write"},
        )
    return changed


def _index(device: str) -> int:
    """cuda:1 -> 1."""
    return int(device.partition(":")[2] or 0)
