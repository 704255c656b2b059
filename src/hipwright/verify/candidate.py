"""One candidate session, in the parent: runs cases, attributes failures and judges the results."""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from hipwright.device.amd.abort_messages import error_of_abort
from hipwright.errors import BadInput, CandidateError, GuardFailed, TaskError, WorkerError
from hipwright.records import Program, Status, Verdict
from hipwright.sandbox import Limits, RemoteFailure, Session, WorkerDied, WorkerTimeout, Zygote
from hipwright.tensors import BITS, HostTensor, Tree, tensor_leaves
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.compare import compare
from hipwright.verify.comparison import OutputComparison
from hipwright.verify.inputs.written import changed_input
from hipwright.verify.reply import Malformed, accepted_report, check_run, forged_reply
from hipwright.verify.sequences.call_sequence import KEPT, SequencedCall

WORKER = "hipwright.verify.cpu.worker:CpuWorker"
"""The service that candidate sessions run; a zygote for candidates preloads its module."""

POISON_A, POISON_B = 0xA5, 0x5A  # a NaN, and a large number (in float16 a NaN too)
POISON_C = 0x1A5  # plausible results (device.poison.NOISE), so that a program cannot recognise poison
# the 16-bit word that fills memory (device.poison.pattern, which needs torch)
POISON_WORDS = {POISON_A: 0x7FF5, POISON_B: 0x7F5A, POISON_C: 0x7FF5}
LAUNCH_LIMIT_S = 2.0  # CPU seconds of one launch at verified shapes
SERVICE_FAILED = 70  # exit code of a session whose own loop fails (sandbox.child)
CALL_MARGIN_S = 20.0  # a call's wall limit beyond its launches, as the machine may be busy


class Rejected(Exception):
    """The candidate failed a check; carries the verdict."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.message)
        self.verdict = verdict


@dataclass(frozen=True)
class CallReply:
    """The reply to one call. info: launches and side effects; tree: outputs and buffers."""

    info: dict[str, Any]
    tree: Tree

    @property
    def stats(self) -> list[dict[str, Any]]:
        """One entry for each launch."""
        found: list[dict[str, Any]] = self.info["stats"]
        return found


PATIENCE = 8.0  # times its limit that a call may take where other processes have the processors
BUSY_SHARE = 0.05
"""The part of its time for which a process that works has a processor at least; one that waits has less."""


class CandidateSession:
    """A process that runs one build, as a context manager.

    so: the library, or the program that `executor` runs, watched for races where `checked`; None: kernels are no-ops.
    repeats: runs launches that repeat checked ones. draws: whether the task draws random numbers.
    """

    def __init__(
        self,
        zygote: Zygote,
        program: Program,
        state: Tree,
        *,
        so: Path | None,
        repeats: Path | None = None,
        executor: Path | None = None,
        checked: bool = False,
        wave: int = 64,
        launch_limit_s: float = LAUNCH_LIMIT_S,
        limits: Limits,
        draws: bool = False,
    ) -> None:
        init: dict[str, Any] = {
            "text": program.text,
            "knobs": program.knobs,
            "mode": "run" if so else "noop",
            "wave": wave,
            "poison": POISON_A,
            "launch_limit_s": launch_limit_s,
            "draws": draws,
        }
        if so:
            init |= {"so": str(so), "executor": str(executor or ""), "checked": checked, "repeats": str(repeats or "")}
        self._wall = min(limits.wall_s, 10 * launch_limit_s + CALL_MARGIN_S)
        self._counted = so is not None
        self._session: Session = zygote.session(WORKER, init, state, limits=limits)

    def __enter__(self) -> CandidateSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def run(self, case: VerificationCase, **header: Any) -> CallReply:
        """One forward call on the case's inputs. Raises GuardFailed, Rejected or infrastructure errors."""
        answer = self._call("run", {**header, **case.settings}, case.inputs, case)
        try:
            check_run(answer.info, answer.tree, counted=self._counted)
        except Malformed as error:
            raise Rejected(
                with_case(forged_reply(f"the worker's reply is not our code's: {error}"), case, header)
            ) from error
        return answer

    def mutate(self, case: VerificationCase, carried: Collection[str] = ()) -> None:
        """Writes the case's values to parameters and buffers, at their addresses. carried: buffers that stay."""
        self._call("mutate", {"carried": sorted(carried)}, case.state, case)

    def sequence(self, steps: Sequence[SequencedCall], *, together: bool = False) -> Iterator[CallReply | GuardFailed]:
        """The reply to each call of a sequence, then the outputs of the first one as they are now.

        Each call is made when its reply is asked for. Raises what `run` raises.
        """
        for step in steps:
            if step.carried is not None:
                self.mutate(step.case, step.carried)
            try:
                yield self.run(step.case, **step.settings)
            except GuardFailed as error:
                yield error
        yield self._call("kept", {"keep": KEPT}, None, steps[0].case)

    def _call(self, method: str, header: Mapping[str, Any], bundle: Tree, case: VerificationCase) -> CallReply:
        start, before = time.monotonic(), self._session.cpu_seconds() or 0.0
        self._session.extend = lambda: self._lacks_processor(start, before)
        with attributed(case, header):
            return CallReply(*self._session.call(method, dict(header), bundle, timeout_s=self._wall))

    def _lacks_processor(self, start: float, before: float) -> bool:
        """Whether a call is over its time because others have the processors: it works, and its own time is not over.

        start: when it began; before: the processor time of its process then.
        """
        elapsed, used = time.monotonic() - start, (self._session.cpu_seconds() or 0.0) - before
        return BUSY_SHARE * elapsed <= used < self._wall and elapsed < PATIENCE * self._wall


@contextmanager
def attributed(case: VerificationCase | None, header: Mapping[str, Any]) -> Iterator[None]:
    """Turns failures of a call that are the candidate's into Rejected; other errors and GuardFailed pass through."""
    try:
        yield
    except GuardFailed:
        raise
    except (CandidateError, TaskError, BadInput) as error:  # the worker does not know the task
        raise Rejected(with_case(accepted_report(error.verdict()), case, header)) from error
    except WorkerError as error:
        found = fault_of(error)
        if found is None:
            raise
        raise Rejected(with_case(accepted_report(found), case, header)) from error


def fault_of(error: WorkerError) -> Verdict | None:
    """The verdict where the candidate crashed or blocked its worker; None where nothing shows that it did."""
    if isinstance(error, WorkerTimeout):
        return _crash("timeout", error.message, error)
    if isinstance(error, WorkerDied):
        note = error.note if isinstance(error.note, dict) else {}
        if note.get("status"):
            # a candidate can write to this stream too
            status: Status = next((known for known in get_args(Status) if known == note["status"]), "hack")
            return accepted_report(_crash(status, str(note.get("message", error.message)), error))
        abort = error_of_abort(error.stderr)  # AMD's runtime aborts the process on a kernel's fault
        if isinstance(abort, CandidateError):
            return _crash(abort.status, abort.message, error)
        if error.signal in (signal.SIGSEGV, signal.SIGBUS):
            return _crash("out_of_bounds", f"{error.message} while the candidate ran", error)
        if error.signal in (signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGABRT):
            return _crash("launch_error", f"{error.message} while the candidate ran", error)
        if error.signal == signal.SIGXCPU:
            return _crash("timeout", "the candidate used up its processor time", error)
        if error.signal == signal.SIGSYS:
            return _crash("hack", "the candidate made a system call that kernels have no use for", error)
        if error.returncode not in (None, SERVICE_FAILED):
            return _crash("hack", "the candidate ended its own process", error)
    if type(error) is WorkerError and "malformed reply" in error.message:
        return forged_reply(f"the candidate's process breaks the protocol: {error.message}")
    if isinstance(error, RemoteFailure) and error.type_name in ("MemoryError", "OutOfMemoryError"):
        return _crash("launch_error", "the candidate asks for more memory than there is", error)
    return None


def _crash(status: Status, message: str, error: WorkerError) -> Verdict:
    return Verdict(status=status, fault="candidate", stage="launch", message=message, evidence=dict(error.evidence))


def with_case(verdict: Verdict, case: VerificationCase | None, header: Mapping[str, Any]) -> Verdict:
    """The verdict with the case in its evidence."""
    if case is None:
        return verdict
    return Verdict(
        status=verdict.status,
        fault=verdict.fault,
        stage=verdict.stage,
        family=case.family,
        workload=case.workload,
        worst_error=verdict.worst_error,
        message=verdict.message if case.name in verdict.message else f"{verdict.message} (on {case.name})",
        evidence={**verdict.evidence, **case_evidence(case), "settings": dict(header)},
    )


def case_evidence(case: VerificationCase) -> dict[str, Any]:
    """What identifies a case's inputs: workload, family, seed, shapes, and the seed of the draws if there are any."""
    shapes = [f"{t.dtype}{list(t.shape)}" for t in tensor_leaves(case.inputs)]
    return {"workload": case.workload, "family": case.family, "seed": case.seed, "inputs": shapes, **case.settings}


# ---------------------------------------------------------------- judging


def judge(case: VerificationCase, answer: CallReply, prefix: str = "", poison: int = POISON_A) -> OutputComparison:
    """Raises Rejected unless the reply is correct; degenerate cases are checked too."""
    for key, what in (("inputs_changed", "input"), ("params_changed", "parameter")):
        if answer.info[key]:
            number = answer.info[key][0]
            name = changed_input(case.inputs, case.written, number) if what == "input" else f"{what} {number}"
            raise Rejected(
                Verdict(
                    status="input_mutated",
                    fault="candidate",
                    family=case.family,
                    workload=case.workload,
                    message=f"{prefix}{name} was written to (on {case.name})",
                    evidence={**case_evidence(case), "changed": answer.info[key], "launches": launches(answer.stats)},
                )
            )
    found = compare(answer.tree, case.expected)
    if not found.ok:
        raise Rejected(_wrong(case, found, prefix, answer.tree, launches(answer.stats), poison))
    if case.expected.generator and answer.info.get("generator") != case.expected.generator:
        raise Rejected(_drawn_otherwise(case, prefix, launches(answer.stats)))
    for leaf, holder in answer.info["aliases"]:
        if (leaf, holder) not in case.expected.aliases:
            raise Rejected(
                Verdict(
                    status="bad_output_spec",
                    fault="candidate",
                    family=case.family,
                    workload=case.workload,
                    message=f"{prefix}{leaf} shares memory with {holder}, which the reference's does not",
                    evidence={**case_evidence(case), "output": leaf, "shares_memory_with": holder},
                )
            )
    return found


def _drawn_otherwise(case: VerificationCase, prefix: str, launched: list[dict[str, Any]]) -> Verdict:
    return Verdict(
        status="wrong_value",
        fault="candidate",
        family=case.family,
        workload=case.workload,
        message=f"{prefix}the program leaves torch's generator in another state than the reference: it draws other "
        f"numbers, more or fewer, so the next call's are wrong (on {case.name})",
        evidence={**case_evidence(case), "launches": launched},
    )


def judge_outputs(case: VerificationCase, tree: Tree, prefix: str) -> None:
    """Raises Rejected unless the outputs alone are correct, as those of an earlier call must remain."""
    found = compare({"outputs": tree}, type(case.expected)({"outputs": case.expected.tree["outputs"]}))
    if not found.ok:
        raise Rejected(_wrong(case, found, prefix, {"outputs": tree}, [], POISON_A))


def _wrong(
    case: VerificationCase,
    found: OutputComparison,
    prefix: str,
    tree: Tree,
    launched: list[dict[str, Any]],
    poison: int,
) -> Verdict:
    hint = ""
    if found.status == "wrong_value" and holds_poison(tree, found, poison):
        hint = "; the element is uninitialised: no kernel wrote it"
    elif case.family == "strided" and found.status == "wrong_value":
        hint = "; the inputs are not contiguous: use their strides, .contiguous(), or assert x.is_contiguous()"
    return Verdict(
        status=found.status,
        fault="candidate",
        family=case.family,
        workload=case.workload,
        worst_error=found.worst_error if np.isfinite(found.worst_error) else None,
        message=f"{prefix}{found.message}{hint} (on {case.name})",
        evidence={**found.evidence(), **case_evidence(case), "launches": launched},
    )


def holds_poison(tree: Tree, found: OutputComparison, poison: int) -> bool:
    """Whether the element that a comparison names still holds the poison of fresh memory."""
    leaf = _leaf(tree, found.path)
    if leaf is None or not leaf.numel or len(found.where) != len(leaf.shape):
        return False
    item = BITS[leaf.dtype]
    if leaf.dtype == "bool" or item.itemsize < 2:
        return False
    word = POISON_WORDS[poison].to_bytes(2, "little") * (item.itemsize // 2)
    return bool(np.asarray(leaf.bits()[found.where]).tobytes() == word)


def _leaf(tree: Tree, path: str) -> HostTensor | None:
    """The leaf at a Rule's path."""

    def walk(node: Tree, name: str) -> HostTensor | None:
        if isinstance(node, HostTensor):
            return node if name == path else None
        items: Sequence[tuple[str, Any]] = ()
        if isinstance(node, dict):
            items = [(f"{name}[{key!r}]", item) for key, item in node.items()]
        elif isinstance(node, (list, tuple)):
            items = [(f"{name}[{index}]", item) for index, item in enumerate(node)]
        return next((hit for n, item in items if (hit := walk(item, n)) is not None), None)

    return walk(tree["outputs"], "output")


def launches(stats: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Kernel, grid and block of the first 16 launches, for the evidence."""
    return [{key: entry[key] for key in ("kernel", "grid", "block") if key in entry} for entry in stats[:16]]


def refusal_verdict(error: GuardFailed, workload: str) -> Verdict:
    """The verdict on an assert that is false for the task's own inputs."""
    verdict = error.verdict()
    return Verdict(
        status="launch_error",
        fault="candidate",
        stage="launch",
        workload=workload,
        message=f"an assert refuses the task's own inputs ({workload}): {verdict.message}",
        evidence=verdict.evidence,
    )
