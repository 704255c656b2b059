"""One program in a GPU's candidate worker, as the parent uses it: its runs, its resident inputs, its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from hipwright.errors import CandidateError, DeviceError, GuardFailed, WorkerError
from hipwright.records import Program, TensorSpec, Verdict
from hipwright.sandbox import Session
from hipwright.tensors import HostTensor, Tree, leaves
from hipwright.verify.candidate import POISON_A, CallReply, Rejected, with_case
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.comparison import OutputComparison
from hipwright.verify.gpu.bridge.parent import Bridge, pieces
from hipwright.verify.gpu.chunk_source import CHUNK_BYTES, ChunkSource, span_bytes
from hipwright.verify.gpu.connection import BULK_LIMIT_S, Mode, RunInfo, WorkerConnection
from hipwright.verify.reply import (
    Malformed,
    accepted_report,
    check_many,
    check_result,
    check_run,
    checked_trace,
    forged_reply,
    whole_numbers,
)
from hipwright.verify.sequences.call_sequence import SequencedCall

if TYPE_CHECKING:
    from hipwright.verify.gpu.reference import DeviceReference
    from hipwright.verify.gpu.reference_handles import ExpectationInfo

Outcome = CallReply | GuardFailed | Verdict


class LoadedProgram:
    """One program in the worker. A context manager."""

    def __init__(self, owner: WorkerConnection, session: Session, number: int, program: Program, mode: Mode) -> None:
        self.program = program
        self._owner = owner
        self._session = session
        self._number = number
        self._mode = mode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the process that holds it still runs."""
        return self._owner.session is self._session and self._session.alive

    def close(self) -> None:
        """Frees everything of the program. If unloading fails, the process is ended."""
        if self.alive:
            try:
                self._owner.call("unload", {"program": self._number}, json_only=True)
            except (Rejected, WorkerError, DeviceError, CandidateError):
                self._owner.recycle()

    # ---------------------------------------------------------------- small cases

    def run(self, case: VerificationCase, **header: Any) -> CallReply:
        """One forward call on the case's inputs. Raises GuardFailed, Rejected or infrastructure errors."""
        outcome = self.run_many([(case, header)])[0]
        if isinstance(outcome, GuardFailed):
            raise outcome
        if isinstance(outcome, Verdict):
            raise Rejected(outcome)
        return outcome

    def run_many(
        self, items: Sequence[tuple[VerificationCase, Mapping[str, Any]]], *, together: bool = False
    ) -> list[Outcome]:
        """`run` for each, in one message. The list ends early with the first Verdict.

        together: the worker waits for the device once; a fault of the device is then reported for the first call,
        whichever caused it.
        """
        if not items:
            return []
        header = {"together": together}
        reply, trees = self._with_cases("run_many", header, items, lambda bundle: bundle)
        return self._outcomes(reply, trees, items, together)

    def sequence(self, steps: Sequence[SequencedCall], *, together: bool = False) -> list[Outcome]:
        """The reply to each call of a sequence, then the outputs of the first one as they are now.

        The list is shorter where a call failed.
        """
        items = [(step.case, step.settings) for step in steps]
        states = [step.case.state if step.carried is not None else None for step in steps]

        def bundled(inputs: list[Tree]) -> Tree:
            return [inputs, [None if state is None else self._owner.sent_state(state) for state in states]]

        header = {"together": together, "carried": [sorted(step.carried or ()) for step in steps]}
        reply, trees = self._with_cases("sequence", header, items, bundled)
        kept: list[Outcome] = []
        runs, most = reply.get("runs"), len(steps) + 1
        if isinstance(runs, list) and len(runs) == most and isinstance(trees, list) and len(trees) == most:
            if not isinstance(trees[-1], dict) or set(trees[-1]) != {"outputs"}:
                raise Rejected(with_case(forged_reply("the worker's reply is not our code's"), steps[0].case, {}))
            kept = [CallReply({}, trees[-1])]
            reply, trees = {"runs": runs[:-1]}, trees[:-1]
        return self._outcomes(reply, trees, items, together) + kept

    def _with_cases(
        self,
        method: str,
        header: Mapping[str, Any],
        items: Sequence[tuple[VerificationCase, Mapping[str, Any]]],
        bundle_of: Callable[[list[Tree]], Tree],
    ) -> tuple[Any, Any]:
        """The reply to a call of several runs; inputs that the worker has are not sent again."""
        for again in (False, True):
            keys, drop, bundle = self._owner.cases.request([case.inputs for case, _ in items])
            named = {
                "runs": [{**settings, **case.settings} for case, settings in items],
                "cases": keys,
                "drop": drop,
                **header,
            }
            reply, trees = self.call(method, named, bundle_of(bundle), case=items[0][0])
            if again or not (isinstance(reply, dict) and reply.get("stale") is True):
                break
            self._owner.cases.clear()
            self._owner.forget_states()
        return reply, trees

    def trace(self, state: Tree, inputs: Tree) -> dict[str, Any]:
        """The library operators and launches of the plan, on tensors without data (TensorSpecs)."""
        reply, _ = self.call("trace", {}, [state, inputs])
        return checked_trace(reply)

    def operators(self, case: VerificationCase) -> Any:
        """The library's operators in one call of a modelnew candidate, as its own, untrusted process reports them."""
        reply, _ = self.call("operators", {}, case.inputs, case=case)
        return reply.get("ops")

    def _outcomes(
        self, reply: Any, trees: Any, items: Sequence[tuple[VerificationCase, Mapping[str, Any]]], together: bool
    ) -> list[Outcome]:
        found: list[Outcome] = []
        try:
            check_many(reply, trees, len(items))
            for entry, tree, (case, header) in zip(reply["runs"], trees, items, strict=False):
                if "guard" in entry:
                    if self.program.form == "modelnew":
                        raise Malformed("a guard, which host code cannot have")
                    error = GuardFailed("")
                    error.message, error.line = entry["guard"], entry["line"]
                    error.evidence = {"line": error.line}
                    found.append(error)
                elif "verdict" in entry:
                    verdict = accepted_report(Verdict.from_dict(entry["verdict"]))
                    if together and verdict.evidence.get("broken") and len(items) > 1:
                        verdict = replace(
                            verdict, message=f"{verdict.message} (on {case.name}, or on what ran with it)"
                        )
                    found.append(with_case(verdict, case, header))
                else:
                    check_run(entry, tree, counted=False)
                    found.append(CallReply(entry, tree))
        except (Malformed, ValueError) as error:
            verdict = with_case(forged_reply(f"the worker's reply is not our code's: {error}"), *items[len(found)])
            found.append(verdict)
        if any(isinstance(one, Verdict) and one.evidence.get("broken") for one in found):
            self._owner.recycle()
        return found

    # ---------------------------------------------------------------- large inputs

    def place(self, set_name: str, source: ChunkSource, slots: int = 1) -> None:
        """Ensures that the slots of a set hold the source's values; slots that do already are left as they are."""
        reply, _ = self.call("set_stale", {"set": set_name, "slots": slots}, bulk=True, json_only=True)
        stale = set(whole_numbers(reply, "stale"))
        held = self._owner.placed.setdefault(set_name, {})
        for number in range(slots):
            wanted = source.slot(number)
            if number in stale or held.get(number) != wanted.drawn:
                self.fill(set_name, number, wanted)

    def fill(self, set_name: str, slot: int, source: ChunkSource) -> None:
        """Writes a source's values into one slot, at the same addresses if the tensors have the same form."""
        where = {"set": set_name, "slot": slot}
        held = self._owner.placed.setdefault(set_name, {})
        held.pop(slot, None)
        specs = [leaf for leaf in leaves(source.arguments) if isinstance(leaf, TensorSpec)]
        self._owner.sizes[set_name] = sum(map(span_bytes, specs))
        self.call("set_open", {**where, "seed": source.digest_seed}, source.arguments, bulk=True)
        self._send(where, source, [span_bytes(spec) for spec in specs])
        digests = source.digests()
        header = {**where, "digests": None if digests is None else [str(number) for number in digests]}
        reply, _ = self.call("set_done", header, bulk=True)
        if reply.get("right") is not True:
            raise WorkerError(f"inputs did not arrive as they were sent: {set_name}, slot {slot}")
        held[slot] = source.drawn

    def _send(self, where: Mapping[str, Any], source: ChunkSource, sizes: Sequence[int]) -> None:
        """Sends a source's bytes to a slot: by the bridge to its host where there is one, else in chunks."""
        bridge = self._owner.bridge(source.host, sum(sizes))
        if bridge is None:
            for leaf, offset, chunk in source.chunks():
                self.call("set_fill", {**where, "leaf": leaf, "offset": offset}, chunk, bulk=True)
            return
        with self._owner.held():
            for leaf, offset, count in pieces(sizes, bridge.bytes):
                source.bridged(bridge.number, leaf, offset, count)
                header = {**where, "leaf": leaf, "offset": offset, "bytes": count}
                self.call("set_fill", header, bulk=True, json_only=True)

    def judged_by(self, run: RunInfo, reference: DeviceReference, expected: ExpectationInfo) -> OutputComparison:
        """A result compared with an expectation by its host, which gets it by the bridge where there is one."""
        sizes = [span_bytes(leaf) for leaf in leaves(run.specs) if isinstance(leaf, TensorSpec)]
        bridge = self._owner.bridge(reference, sum(sizes))
        if bridge is None:  # read ahead in another thread
            return reference.compare(expected, run.specs, self.chunks(run))
        with self._owner.held():
            try:
                return reference.compare(expected, run.specs, self._bridged(run, sizes, bridge), bridge.number)
            finally:
                if self.alive:
                    self.call("bridge_clear", {"bytes": min(bridge.bytes, max(sizes))}, json_only=True)

    def _bridged(self, run: RunInfo, sizes: Sequence[int], bridge: Bridge) -> Iterator[tuple[int, int, int]]:
        """(leaf, offset, bytes) of pieces of a result, each in the bridge when it is given."""
        for leaf, offset, count in pieces(sizes, bridge.bytes):
            header = {"handle": run.handle, "leaf": leaf, "offset": offset, "bytes": count, "bridged": True}
            self.call("fetch", header, json_only=True)
            yield leaf, offset, count

    def free_sets(self, above: int) -> None:
        """Frees sets whose slots hold more than so many bytes each."""
        for name in [name for name, size in self._owner.sizes.items() if size > above]:
            self.call("set_free", {"set": name}, bulk=True)
            self._owner.placed.pop(name, None)
            self._owner.sizes.pop(name)

    def audit(self) -> list[tuple[str, int, int, str]]:
        """(set, slot, leaf, "value" or "zone") of everything that was written to in all resident sets; those are filled
        again.
        """
        reply, _ = self.call("set_audit", {}, bulk=True)
        found = []
        try:
            for name, slot, leaf, what in reply["changed"]:
                found.append((str(name), int(slot), int(leaf), str(what)))
        except (KeyError, TypeError, ValueError) as error:
            raise WorkerError("the worker's reply is malformed: what was written to") from error
        for set_name, number, _, _ in found:
            self._owner.placed.get(set_name, {}).pop(number, None)
        return found

    def run_set(
        self,
        set_name: str,
        slot: int = 0,
        poison: int = POISON_A,
        case: VerificationCase | None = None,
        **settings: Any,
    ) -> RunInfo:
        """One forward call on a slot; the results stay on the device until `drop`. settings: more of the call's."""
        header = {"set": set_name, "slot": slot, "poison": poison, **settings}
        reply, specs = self.call("run_set", header, case=case)
        return self.result(reply, specs, set_name, slot)

    def fetch(self, run: RunInfo, leaf: int, offset: int, bytes_: int) -> HostTensor:
        """Some bytes of the span of a tensor leaf of a result."""
        header = {"handle": run.handle, "leaf": leaf, "offset": offset, "bytes": bytes_}
        _, chunk = self.call("fetch", header)
        if not isinstance(chunk, HostTensor) or chunk.dtype != "uint8" or chunk.numel != bytes_:
            raise Rejected(forged_reply("the worker's reply is not our code's: no such bytes"))
        return chunk

    def chunks(self, run: RunInfo, bytes_: int = CHUNK_BYTES) -> Iterator[tuple[int, int, HostTensor]]:
        """(leaf, offset, bytes) for the span of every tensor leaf of a result."""
        for leaf, spec in enumerate(leaf for leaf in leaves(run.specs) if isinstance(leaf, TensorSpec)):
            size = span_bytes(spec)
            for offset in range(0, size, bytes_):
                yield leaf, offset, self.fetch(run, leaf, offset, min(bytes_, size - offset))

    def digests(self, run: RunInfo, seed: int) -> tuple[str, ...]:
        """`hipwright.digest` of each tensor leaf of a result, decimal, computed on the device.

        For programs only: a candidate's host code could return any digest.
        """
        reply, _ = self.call("result_digests", {"handle": run.handle, "seed": seed}, json_only=True)
        found = reply.get("digests")
        count = sum(isinstance(leaf, TensorSpec) for leaf in leaves(run.specs))
        if not isinstance(found, list) or len(found) != count or not all(isinstance(one, str) for one in found):
            raise Rejected(forged_reply("the worker's reply is not our code's: no digests"))
        return tuple(found)

    def drop(self, run: RunInfo) -> None:
        """Frees a result."""
        self.call("drop", {"handle": run.handle}, json_only=True)

    def slot_count(self, set_name: str) -> int:
        """How many slots of a set were placed."""
        return len(self._owner.placed.get(set_name, {}))

    # ---------------------------------------------------------------- inside

    def result(self, reply: dict[str, Any], specs: Tree, set_name: str, slot: int) -> RunInfo:
        """A worker's reply about one call on a slot. Raises Rejected where the worker's code gives no such reply."""
        try:
            check_result(reply, specs)
        except Malformed as error:
            raise Rejected(forged_reply(f"the worker's reply is not our code's: {error}")) from error
        if reply["inputs_changed"]:
            self._owner.placed.get(set_name, {}).pop(slot, None)
        return RunInfo(int(reply["handle"]), specs, reply)

    def call(
        self,
        method: str,
        header: Mapping[str, Any],
        bundle: Tree = None,
        *,
        case: VerificationCase | None = None,
        bulk: bool = False,
        json_only: bool = False,
    ) -> tuple[dict[str, Any], Tree]:
        """One call of the worker about this program, as `WorkerConnection.call`. bulk: moves or checks large inputs."""
        if not self.alive:
            raise WorkerError("the candidate's process has been replaced")
        limit = BULK_LIMIT_S if bulk else self._owner.limit_for(self.program)
        named = {**header, "program": self._number}
        return self._owner.call(method, named, bundle, case=case, limit_s=limit, json_only=json_only)
