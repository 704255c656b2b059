"""A task's reference on a device, as the parent uses it: inputs, expectations and baselines (docs/tasks.md).

The tensors stay in the host (`hipwright.task.device.server`), the one process of a GPU that runs the task's own code
and holds expectations. Only specs, digests and chunks of bytes are sent; nothing here imports torch. The host computes
budgets and compares on the device; the numbers that define a budget come from `hipwright.verify.tolerance`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

from hipwright.errors import DeviceError, TaskError
from hipwright.held import held
from hipwright.records import TensorSpec, TolerancePolicy
from hipwright.sandbox import Limits, WorkerTimeout
from hipwright.task import TaskHandle
from hipwright.tensors import Tree, leaves
from hipwright.verify.compare import check_structure
from hipwright.verify.comparison import OutputComparison
from hipwright.verify.expectation import NATIVE_SLACK, alias_pairs
from hipwright.verify.gpu import budget as rules
from hipwright.verify.gpu.hosts.device_process import Crowded, DeviceProcess, Hosts
from hipwright.verify.gpu.reference_handles import (
    BaselineMissing,
    ExpectationInfo,
    InputSetId,
    InputSource,
    ReferenceSide,
    unjudged,
)

BASELINES = ("eager", "compile")
MORE = ("max-autotune", "copy")
"""Sides that are opened only on request: slow to compile, or no baseline at all."""
LIMITS = Limits(wall_s=600.0, cpu_s=24 * 3600.0, memory_mb=16384)  # the CUDA driver's own mappings count, 1.5 GB


def open_reference(
    handle: TaskHandle,
    zygote: Hosts,
    device: str,
    *,
    limits: Limits = LIMITS,
    memory_limit_bytes: int = 0,
    last_level_bytes: int = 0,
    simulated: str = "",
    share: Callable[[], int] = lambda: 0,
) -> DeviceReference:
    """Starts the host of `handle`'s task on `device` ("cuda:0", "cpu"), in a zygote that runs no candidates or in a
    process shared with tasks that it trusts.

    limits.wall_s bounds each call. memory_limit_bytes: device memory the host may fill; 0 for 90 % of what is free when
    it is needed. last_level_bytes: of the architecture's last cache, which torch does not report on every device (the
    Infinity Cache); 0 where it is not known. simulated: the name of a GPU that is software, where inputs are not
    rotated. share(): bytes of device memory that the host may keep beside others, asked when it starts; 0 for all.
    Raises TaskError where the file's code fails, DeviceError where the device does.
    """
    bounds: dict[str, int | str] = {"memory_limit_bytes": memory_limit_bytes, "last_level_bytes": last_level_bytes}
    bounds["simulated"] = simulated
    return DeviceReference(handle, zygote, device, limits, bounds, share)


class DeviceReference(DeviceProcess):
    """One task on one device. Safe to use from several threads, one call at a time.

    Inputs, expectations and baselines are kept until `free`. The host is one session; the next call replaces a dead
    one, and its contents are computed again.
    """

    def __init__(
        self,
        handle: TaskHandle,
        zygote: Hosts,
        device: str,
        limits: Limits,
        bounds: Mapping[str, int | str],
        share: Callable[[], int] = lambda: 0,
    ) -> None:
        init = {"name": f"{handle.task.name}.py", "source": handle.task.source, "device": device, **bounds}
        super().__init__(zygote, init, limits, share)
        self.handle = handle
        self.compile_s = 0.0  # wall seconds in which torch.compile must give a baseline; 0: those of any request
        self._ids = itertools.count(1)
        self._too_long: set[str] = set()
        self._known: dict[tuple[Any, ...], Any] = {}
        self._states: dict[int, tuple[Tree, int]] = {}
        self._sent: set[int] = set()
        self._expected: dict[tuple[Any, ...], ExpectationInfo] = {}
        self._keys: dict[int, tuple[tuple[Any, ...], tuple[Tree, TolerancePolicy]]] = {}  # of every case so far
        try:
            self.info: dict[str, Any] = self.ask("describe")[0]
        except BaseException:
            self.close()
            raise

    def free(self, what: str = "all") -> None:
        """Frees device memory: "inputs", "expectations", "sides" or "all". Inputs are drawn again when needed."""
        if what in ("expectations", "all"):
            self._expected.clear()
        if self._session is not None and self._session.alive:
            self.ask("free", {"what": what})

    # ---------------------------------------------------------------- inputs

    def inputs(self, workload: str, seed: int, family: str = "given", slot: int = 0) -> InputSource:
        """One set of inputs, drawn on the device on first use. Slots of one seed hold different values."""
        return InputSource(self, self._drawn(workload, seed, family, slot))

    def _drawn(self, workload: str, seed: int, family: str, slot: int = 0) -> InputSetId:
        restricted = family != "given" and self._restricted(workload)
        return InputSetId(workload, seed, family, restricted, slot)

    def _restricted(self, workload: str) -> bool:
        """Whether signed values break a reference that the given ones do not (`Domain.restricted`)."""
        key = ("restricted", workload)
        if key not in self._known:
            drawn = [self.header(InputSetId(workload, 0, family)) for family in ("given", "normal")]
            given, signed = self.ask("nonfinite", {"drawn": drawn})[0]["shares"]
            self._known[key] = signed > given
        return bool(self._known[key])

    def header(self, drawn: InputSetId) -> dict[str, Any]:
        """A draw in the form of the host's requests."""
        first = self.handle.task.workloads[0]
        return {
            "workload": self.handle.workload(drawn.workload).to_dict(),
            "given": [list(spec.shape) for spec in first.specs],
            "seed": drawn.seed,
            "family": drawn.family,
            "restricted": drawn.restricted,
            "slot": drawn.slot,
        }

    def ask_once(self, method: str, drawn: InputSetId) -> tuple[dict[str, Any], Tree]:
        """A request about inputs whose reply cannot change, cached."""
        with self._turn:
            if (method, drawn) not in self._known:
                self._known[method, drawn] = self.ask(method, self.header(drawn))
            reply: tuple[dict[str, Any], Tree] = self._known[method, drawn]
            return reply

    # ---------------------------------------------------------------- what is right

    def expect(
        self, workload: str, seed: int, state: Tree, policy: TolerancePolicy, *, family: str = "given", slot: int = 0
    ) -> ExpectationInfo:
        """The expectation for one set of inputs with the state `state`; kept until freed.

        Raises TaskError where the reference fails on them; a family's inputs that it refuses are `rejected` instead.
        """
        drawn = self._drawn(workload, seed, family, slot)
        with self._turn:
            key = (drawn, self.state_number(state), policy)
            if key not in self._expected:
                try:
                    self._expected[key] = info = self._make(drawn, state, policy)
                    self._keys[info.case] = key, (state, policy)
                except TaskError as error:
                    if family == "given":
                        raise
                    why = f"the reference refuses these inputs: {error.message[:200]}"
                    self._expected[key] = ExpectationInfo(0, drawn, {"outputs": None, "buffers": {}}, rejected=why)
            return self._expected[key]

    def _make(self, drawn: InputSetId, state: Tree, policy: TolerancePolicy) -> ExpectationInfo:
        if not isinstance(found := self._made(drawn, state, policy), int):
            return found
        with self.with_spare(found):
            made = self._made(drawn, state, policy, lacked=found)
        assert not isinstance(made, int)
        return made

    def _made(self, drawn: InputSetId, state: Tree, policy: TolerancePolicy, lacked: int = 0) -> ExpectationInfo | int:
        """An expectation, or the bytes beyond its share that a float64 run lacks, unless they are known."""
        may_ask, case, strict = not lacked and self.share() > 0, next(self._ids), policy.mode == "strict"
        header = {"case": case, "drawn": self.header(drawn), "state": self.state_number(state), "strict": strict}
        header["written"] = list(self.handle.written)
        reply, tree = self.ask("run", {**header, "may_ask": may_ask})
        if "wanted" in reply:
            return int(reply["wanted"])
        if reply["short"] and self.crowded():
            raise Crowded(
                DeviceError("too little for the float64 reference", evidence={"out_of_memory": {"lacked": lacked}})
            )
        arguments = self.ask_once("arguments", drawn)[1]
        c = policy.c * (NATIVE_SLACK if reply["reference"] == "native" else 1.0)
        budgets = [rules.budget(leaf, arguments, state, c) for leaf in reply["leaves"]]
        shares = self.ask("budgets", {"case": case, "strict": strict, "budgets": budgets})[0]["shares"]
        overflow = rules.overflow(reply["leaves"], shares) if drawn.family != "given" and strict else ""
        info = ExpectationInfo(
            case=case,
            drawn=drawn,
            tree=tree,
            aliases=alias_pairs(reply),
            random=reply["random"],
            mutated=tuple(reply["mutated"]),
            reference=reply["reference"],
            moved=reply["moved"],
            rejected=unjudged(reply, overflow),
            notes=tuple(reply["notes"]),
            seconds=reply["seconds"],
            bytes_out=reply["bytes_out"],
            unchanged=frozenset(reply["unchanged"]),
        )
        if not strict or info.rejected or info.random or info.mutated:
            return info
        other = self.header(InputSetId(drawn.workload, drawn.seed + 1, drawn.family, drawn.restricted, drawn.slot))
        found = self.ask("lint", {**header, "other": other})[0]
        notes = tuple(f"not linted for want of device memory: {what}" for what in found["skipped"])
        return replace(info, degenerate=rules.degenerate(found["passes"]), notes=(*info.notes, *notes))

    def compare(
        self,
        expected: ExpectationInfo,
        got: Tree,
        stream: Iterable[tuple[int, int, Any]],
        bridge: int | None = None,
    ) -> OutputComparison:
        """The result of `verify.compare.compare`, computed on the device.

        got: {"outputs": nesting, "buffers": {path: leaf}} with a TensorSpec for each tensor. stream: (leaf, offset,
        bytes) for every byte of every tensor leaf of `got` in order: of its span (`hipwright.digest.span`), chunks of
        whole elements, rising offsets; their number where they come by a bridge. It is not read when the structure is
        wrong.
        """
        wrong = check_structure(rules.without_values(got), rules.rules_without_values(expected.tree))
        if wrong is not None:
            return wrong
        given = [leaf for leaf in leaves(got) if isinstance(leaf, TensorSpec)]
        order = rules.pairing(got, expected.tree)  # a dict may have its keys in another order
        place = {number: index for index, number in enumerate(order)}
        specs = [given[number] for number in order]
        with self._turn:  # the host runs one comparison with a case at a time
            case = self._begin(expected, [list(spec.stride) for spec in specs])
            for leaf, offset, chunk in stream if bridge is not None else rules.prefetched(stream):
                at = {"case": case, "leaf": place[leaf], "offset": offset}
                if bridge is None:
                    self.ask("compare_chunk", at, chunk)
                else:
                    self.ask("compare_chunk", {**at, "bridge": bridge, "bytes": chunk}, json_only=True)
            found = self.ask("compare_end", {"case": case})[1]["leaves"]
        worst = OutputComparison()
        for reply, spec in zip(found, specs, strict=True):
            one = rules.comparison(reply, spec)
            if (one.ok, -one.worst_error) < (worst.ok, -worst.worst_error):
                worst = one
        return worst

    def _begin(self, expected: ExpectationInfo, strides: list[list[int]]) -> int:
        """The case to compare with, computed again from the same draws where the host freed it."""
        for _ in range(2):
            if not self.ask("compare_begin", {"case": expected.case, "strides": strides})[0].get("gone"):
                return expected.case
            with self._turn:
                key, (state, policy) = self._keys[expected.case]
                self._expected.pop(key, None)
                drawn = expected.drawn
                expected = self.expect(drawn.workload, drawn.seed, state, policy, family=drawn.family, slot=drawn.slot)
        raise DeviceError(f"not enough memory on {self.device} to keep one expectation", hint="free other programs")

    # ---------------------------------------------------------------- timing

    def side(
        self,
        name: str,
        workload: str,
        *,
        state: Tree,
        seed: int,
        slots: int = 1,
        graph: bool = True,
        moved: int = 0,
    ) -> ReferenceSide:
        """The baseline on slots 0 .. slots-1 of the inputs under `seed`; "compile" and "max-autotune" are compiled
        here. "copy" moves `moved` bytes a call over as many slots.

        Raises BaselineMissing where torch.compile fails or takes longer than `compile_s`, after which the host ends,
        TaskError where the model itself does.
        """
        drawn = [self.header(self._drawn(workload, seed, "given", slot)) for slot in range(slots)]
        side = next(self._ids)
        written = list(self.handle.written)
        header = {"side": side, "name": name, "drawn": drawn, "graph": graph, "moved": moved, "written": written}
        reply = self._opened(name, {**header, "state": self.state_number(state)})
        if reply.get("missing"):
            raise BaselineMissing(f"no {name} baseline: {reply['missing']}", evidence={"baseline": name})
        return ReferenceSide(self, name, side, self.generation, tuple(reply["notes"]))

    def _opened(self, name: str, header: dict[str, Any]) -> dict[str, Any]:
        """The host's reply about a new side, or why there is none; what took too long is not tried again."""
        limit_s = self.compile_s if name not in ("eager", "copy") and self.compile_s else inf
        if name not in self._too_long:
            try:
                return self.ask("side", header, limit_s=limit_s)[0]
            except TaskError as error:
                if limit_s == inf or not isinstance(error.__cause__, WorkerTimeout):
                    raise
                self._too_long.add(name)
                self._alive()  # a new host: sides of the old one are known to be gone
        return {"missing": f"torch.compile gives none within {limit_s:g} s, the limit of this run"}

    def renew(
        self, sides: Iterable[ReferenceSide], workload: str, slots: int, *, old: int, new: int, state: Tree
    ) -> bool:
        """Gives open sides the inputs under the seed `new` in place of those under `old`, and another state; what was
        compiled and captured stays. False where the new inputs do not fit in their place: open the sides again.
        """
        header: dict[str, Any] = {
            name: [self.header(self._drawn(workload, seed, "given", slot)) for slot in range(slots)]
            for name, seed in (("old", old), ("new", new))
        }
        numbers = [side.number for side in sides if side.generation == self.generation]
        header |= {"sides": numbers, "state": self.state_number(state), "written": list(self.handle.written)}
        return bool(self.ask("side_renew", header)[0]["renewed"])

    def taken(self) -> int:
        """Bytes of device memory that the host has taken at the most; 0 on the CPU."""
        return int(self.ask("memory")[0]["peak"])

    def measure_ceilings(self) -> dict[str, Any]:
        """The device's ceilings, measured now; `hipwright.measure.ceilings` stores them."""
        return self.ask("ceilings")[0]

    # ---------------------------------------------------------------- the host

    def state_number(self, state: Tree) -> int:
        """The host's number of a state table, which is sent once.

        Tables are kept alive, so an id belongs to one table.
        """
        with self._turn:
            if id(state) not in self._states:
                self._states[id(state)] = (state, next(self._ids))
            number = self._states[id(state)][1]
            self._alive()
            if number not in self._sent:
                table = held(state)
                rest = state if table is None else {**state, "params": {}}
                self.ask("state", {"state": number, "held": None if table is None else table.recipe}, rest)
                self._sent.add(number)
            return number

    def started_again(self) -> None:
        """Forgets what an earlier session held."""
        self._sent.clear()
        self._expected.clear()
