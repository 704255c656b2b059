"""The verdict on one program on the `cpu` target: stages, cheap first; the first failure decides.

1. checked build, smallest claimed workload: bounds, races, barriers, and the values
2. three launch orders and two poisons: equal bits, or within tolerance where float atomics leave the order open
3. every input family, unseen shapes, and the task's own shapes where the cpu can carry them
4. a second call with new inputs and parameters at the old addresses; the first call's outputs must stay
5. kernels replaced by no-ops: if the outputs are still right, the program's kernels do none of the work
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hipwright.config import cache_dir
from hipwright.errors import CandidateError, GuardFailed
from hipwright.program import Parsed
from hipwright.records import Build, Program, Verdict
from hipwright.sandbox import Limits, Zygote
from hipwright.tensors import HostTensor, tensor_leaves
from hipwright.toolchain.cache import BuildCache
from hipwright.verify.candidate import (
    POISON_A,
    POISON_B,
    Answer,
    Candidate,
    Rejected,
    judge,
    judge_again,
    launches,
    where_from,
)
from hipwright.verify.oracle import MUTATED, TRIALS, Case, Oracle, Planned
from hipwright.verify.reply import believable

FULL_LAUNCH_S = 20.0  # processor seconds of one launch at the task's own shapes
FULL_SECONDS = 1.5  # predicted kernel seconds over which the task's own shapes are left out
# processor seconds of what the checked run counts, on a laptop core: a prediction from counts is the same everywhere
COSTS = {"read_bytes": 1e-9, "write_bytes": 1e-9, "lds_bytes_moved": 1e-9, "barriers": 1e-5, "wave_ops": 5e-6,
         "atomics": 5e-8}  # fmt: skip
THREAD_SECONDS = 2e-8
MANY_ELEMENTS = 1 << 16  # a main workload above this runs the short list of families
SHORT_LIST = ("given", "normal", "shifted", "outliers", "zeros90", "strided", *TRIALS)
ORDERS = (("forward", 0, POISON_A), ("reverse", 0, POISON_B), ("shuffle", 1, POISON_A))

Builds = Mapping[tuple[int, bool], Build]


def verify_cpu(
    parsed: Parsed,
    program: Program,
    builds: Builds,
    oracle: Oracle,
    zygote: Zygote,
    *,
    waves: Sequence[int] = (64,),
    limits: Limits = Limits(),  # noqa: B008
    cache: BuildCache | None = None,
) -> Verdict:
    """Verify one built program.

    builds: by (wave, checked); every wave of `waves` needs both, and a checked one for 32 that is not in `waves` is
    run for information. cache: where the builds' blobs lie (default: the shared cache). Raises infrastructure errors;
    everything that the program or the task did wrong is in the Verdict.
    """
    problem = oracle.status()
    if problem is not None:
        status, why = problem
        return Verdict(status=status, fault="task", stage="lint", message=why)
    store = cache or BuildCache(cache_dir())
    run = _Verification(program, builds, oracle, zygote, limits, store, tuple(waves))
    try:
        run.everything()
    except Rejected as rejected:
        return run.verdict(rejected.verdict)
    except CandidateError as error:
        return run.verdict(believable(error.verdict()))
    return run.verdict(Verdict(status="pass"))


@dataclass
class _Verification:
    program: Program
    builds: Builds
    oracle: Oracle
    zygote: Zygote
    limits: Limits
    cache: BuildCache
    waves: tuple[int, ...]
    worst: float | None = None
    evidence: dict[str, None] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    checks: dict[str, Any] = field(default_factory=dict)
    main: Planned | None = None
    predicted: float = 0.0  # processor seconds of one fast call on the main workload

    def everything(self) -> None:
        """All stages in order."""
        self.skipped |= self.oracle.skipped
        for wave in self.waves:
            with self._timed(f"checked, wave {wave}"):
                self.checked(wave)
        with self._timed("other wave"):
            self.other_wave()
        for index, wave in enumerate(self.waves):
            with self._timed(f"fast, wave {wave}"):
                self.fast(wave, thorough=index == 0)
        with self._timed("no-op"):
            self.noop()

    # ---------------------------------------------------------------- stages

    def checked(self, wave: int) -> None:
        """Every access checked, on the smallest workload that the program claims."""
        traffic: dict[str, list[float]] = {}
        with self._session(wave, checked=True) as session:
            answer = self._claimed(session)
            self.predicted = max(self.predicted, sum(map(_predicted_seconds, answer.stats)))
            case = self._main_case("given")
            self._judge(case, answer)
            for entry in answer.stats:
                sums = traffic.setdefault(entry["kernel"], [0.0, 0.0])
                sums[0] += entry["read_bytes"] + entry["write_bytes"]
                sums[1] += entry["argument_bytes"]
        if wave == self.waves[0]:
            self.checks["traffic"] = {
                kernel: round(max(1.0, moved / held), 3) for kernel, (moved, held) in traffic.items() if held
            }

    def _claimed(self, session: Candidate) -> Answer:
        """The first workload that no guard refuses; sets `main`. A guard may not refuse the task's own shapes."""
        refusal: GuardFailed | None = None
        todo = (self.main,) if self.main else self._by_size()
        for planned in todo:
            name = planned.workload.name
            try:
                answer = session.run(self.oracle.case(name, self._first_family(name)))
            except GuardFailed as error:
                if planned.workload.origin != "derived":
                    raise Rejected(_refuses(error, name)) from error
                self.skipped[name] = f"the program does not claim this shape: {error.message}"
                refusal = error
                continue
            self.main = planned
            return answer
        assert refusal is not None  # at least one workload is planned
        raise Rejected(
            Verdict(
                status="unscorable",
                fault="task",
                message="the program claims none of the shapes that the cpu target can run: " + refusal.message,
            )
        )

    def _by_size(self) -> list[Planned]:
        roles = {"families": 0, "unseen": 1, "full": 2}
        return sorted(self.oracle.planned(), key=lambda planned: roles[planned.role])

    def other_wave(self) -> None:
        """The smallest workload on 32 lanes when nobody asked for 32: information only."""
        build = self.builds.get((32, True))
        if 32 in self.waves or build is None:
            return
        if not build.ok:
            self.checks["wave32"] = "fail: it does not compile"
            return
        try:
            with self._session(32, checked=True) as session:
                case = self._main_case("given")
                judge(case, session.run(case))
            self.checks["wave32"] = "pass"
        except (Rejected, CandidateError) as error:
            verdict = error.verdict if isinstance(error, Rejected) else error.verdict()
            self.checks["wave32"] = f"fail: {verdict.status}: {verdict.message}"

    def fast(self, wave: int, *, thorough: bool) -> None:
        """The build without checks: orders and poisons, families, unseen and own shapes, the second call."""
        with self._session(wave, checked=False) as session:
            self.orders(session)
            if thorough:
                self.families(session)
                self.other_shapes(session)
                if not self.oracle.kernelbench:
                    self.second_call(session)
        if thorough:
            self.own_shapes(wave)

    def orders(self, session: Candidate) -> None:
        """Three orders, two poisons."""
        case = self._main_case("normal")
        answers = []
        for order, seed, poison in ORDERS:
            answer = session.run(case, order=order, seed=seed, poison=poison)
            self._judge(case, answer, poison=poison)
            answers.append(answer)
        first = answers[0]
        open_order = any(entry["float_atomics"] for entry in first.stats)
        for other, (order, _, _) in zip(answers[1:], ORDERS[1:], strict=True):
            place = _first_difference(first, other)
            if place is not None and not open_order:
                raise Rejected(_unstable(case, place, order, first))
        self.checks["orders"] = "within tolerance (float atomics)" if open_order else "bit-equal"

    def families(self, session: Candidate) -> None:
        """Every family on the main workload."""
        assert self.main is not None
        name = self.main.workload.name
        large = sum(t.numel for t in tensor_leaves(self._main_case("given").inputs)) > MANY_ELEMENTS
        ran = []
        for family in self.oracle.families(name):
            if large and family not in SHORT_LIST:
                continue
            if self._try(session, self.oracle.case(name, family)):
                ran.append(family)
        self.checks["families"] = ran

    def other_shapes(self, session: Candidate) -> None:
        """Shapes that the program could not have been written for."""
        assert self.main is not None
        for planned in self.oracle.planned():
            if planned.role == "unseen" and planned.workload.name not in (self.main.workload.name, *self.skipped):
                for family in ("normal", "given"):
                    known = self.oracle.families(planned.workload.name)
                    self._try(session, self.oracle.case(planned.workload.name, family if family in known else known[0]))

    def own_shapes(self, wave: int) -> None:
        """The task's own shapes, unless what the checked run counted foretells that it takes too long."""
        assert self.main is not None
        with self._session(wave, checked=False, launch_limit_s=FULL_LAUNCH_S) as session:
            for planned in self.oracle.planned():
                name = planned.workload.name
                if planned.role != "full" or name == self.main.workload.name:
                    continue
                case = self.oracle.case(name, self._first_family(name))
                small = _elements(self._main_case("given"))
                if (expected := self.predicted * _elements(case) / max(small, 1)) > FULL_SECONDS:
                    self.skipped[name] = f"about {expected:.1f} s on the cpu target; verified at smaller shapes"
                    continue
                try:
                    self._try(session, case)
                except Rejected as rejected:
                    if rejected.verdict.status != "timeout":
                        raise
                    self.skipped[name] = f"over {FULL_LAUNCH_S:g} s on the cpu target; verified at smaller shapes"
                    return  # the session is gone

    def second_call(self, session: Candidate) -> None:
        """New values at the old addresses; then the first call's outputs are read again."""
        first, second = self._main_case("normal"), self._main_case(MUTATED)
        if second.rejected:
            return
        self._judge(first, session.run(first, keep="first"))
        session.mutate(second)
        try:
            answer = session.run(second, reuse=True)
        except GuardFailed:
            return
        self._judge(second, answer, "in a second call with new values at the same addresses, ")
        if not first.expected.aliases:
            judge_again(first, session.kept("first", first), "an earlier call's result changed with the next call: ")
        self.checks["second_call"] = "pass"

    def noop(self) -> None:
        """Whether the outputs stay right without the program's kernels."""
        right = True
        with self._session(None, checked=False) as session:
            for family in ("normal", "given"):
                case = self._main_case(family)
                if not case.counts:
                    continue
                try:
                    judge(case, session.run(case))
                except (Rejected, CandidateError):
                    right = False
                    break
        self.checks["noop_right"] = right

    # ---------------------------------------------------------------- small parts

    def _first_family(self, workload: str) -> str:
        return self.oracle.families(workload)[0]

    def _main_case(self, family: str) -> Case:
        """A case of the main workload; the first family stands in where one does not apply."""
        assert self.main is not None
        name = self.main.workload.name
        known = self.oracle.families(name)
        if family not in known and family != MUTATED:
            family = known[0]
        case = self.oracle.case(name, family)
        return case if not case.rejected or family == MUTATED else self.oracle.case(name, known[0])

    def _try(self, session: Candidate, case: Case) -> bool:
        """Run and judge one case; False when it is skipped."""
        why = case.rejected or case.degenerate
        if why:
            self.skipped[case.name] = why
        if case.rejected:
            return False
        try:
            answer = session.run(case)
        except GuardFailed as error:
            if case.family in ("given", *TRIALS) and self._own(case.workload):
                raise Rejected(_refuses(error, case.name)) from error
            self.skipped[case.name] = f"the program does not claim this: {error.message}"
            return False
        self._judge(case, answer)
        return True

    def _own(self, workload: str) -> bool:
        return any(p.workload.name == workload and p.workload.origin != "derived" for p in self.oracle.planned())

    def _judge(self, case: Case, answer: Answer, prefix: str = "", poison: int = POISON_A) -> None:
        found = judge(case, answer, prefix, poison)
        if case.expected.reference_dtype == "native":
            self.checks["reference_dtype"] = "native: an operator has no float64 form, so c is twice as large"
        if case.counts:
            self.evidence[case.workload] = None
            self.worst = max(self.worst or 0.0, found.worst_error)
            row = self.checks.setdefault("errors", {}).setdefault(case.workload, {})  # the report's table
            row[case.family] = max(row.get(case.family, 0.0), round(found.worst_error, 4))

    def _session(self, wave: int | None, *, checked: bool, launch_limit_s: float | None = None) -> Candidate:
        """A session of one build; wave None is the no-op one. Its state is that of the main cases."""
        first = self.oracle.planned()[0].workload.name
        state = self.oracle.case(first, self._first_family(first)).state
        so: Path | None = None
        if wave is not None:
            so = self.cache.path(self.builds[wave, checked].blob)
        more = {} if launch_limit_s is None else {"launch_limit_s": launch_limit_s}
        return Candidate(self.zygote, self.program, state, so=so, wave=wave or 64, limits=self.limits, **more)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start, prepared = time.perf_counter(), self.oracle.seconds
        try:
            yield
        finally:
            spent = time.perf_counter() - start - (self.oracle.seconds - prepared)
            self.checks.setdefault("seconds", {})[stage] = round(spent, 4)

    def verdict(self, verdict: Verdict) -> Verdict:
        """With what was checked, on which workloads, and what was left out."""
        checks = {**self.checks, "waves": list(self.waves), "shapes": self._shapes()}
        return Verdict(
            status=verdict.status,
            fault=verdict.fault,
            stage=verdict.stage,
            family=verdict.family,
            workload=verdict.workload,
            worst_error=self.worst if verdict.passed else verdict.worst_error,
            message=verdict.message,
            evidence=verdict.evidence,
            workloads=tuple(self.evidence),
            skipped=self.skipped,
            checks=checks,
        )

    def _shapes(self) -> dict[str, list[str]]:
        """The input shapes of the workloads that stood as evidence."""
        specs: Callable[[str], list[str]] = lambda name: [  # noqa: E731
            f"{t.dtype}{list(t.shape)}" for t in tensor_leaves(self.oracle.case(name, self._first_family(name)).inputs)
        ]
        return {name: specs(name) for name in self.evidence}


def _predicted_seconds(entry: Mapping[str, Any]) -> float:
    threads = prod(entry["grid"]) * prod(entry["block"])
    return float(threads * THREAD_SECONDS + sum(entry[name] * cost for name, cost in COSTS.items()))


def _elements(case: Case) -> int:
    return sum(t.numel for t in tensor_leaves(case.inputs))


def _refuses(error: GuardFailed, workload: str) -> Verdict:
    verdict = error.verdict()
    return Verdict(
        status="launch_error",
        fault="candidate",
        stage="launch",
        workload=workload,
        message=f"an assert refuses the task's own inputs ({workload}): {verdict.message}",
        evidence=verdict.evidence,
    )


def _unstable(case: Case, place: tuple[int, tuple[int, ...]], order: str, first: Answer) -> Verdict:
    leaf, index = place
    return Verdict(
        status="nondeterministic",
        fault="candidate",
        family=case.family,
        workload=case.workload,
        message=f"output {leaf} at {list(index)} depends on the order in which threads and blocks run (forward against "
        f"{order}) or on uninitialised memory, and the kernels declare no float atomics (on {case.name})",
        evidence={**where_from(case), "output": leaf, "index": list(index), "launches": launches(first.stats)},
    )


def _first_difference(a: Answer, b: Answer) -> tuple[int, tuple[int, ...]] | None:
    """(leaf, index) of the first bit that differs; NaN equals NaN."""
    pairs = zip(tensor_leaves(a.tree), tensor_leaves(b.tree), strict=True)
    for leaf, (x, y) in enumerate(pairs):
        different = _different(x, y)
        if different.any():
            return leaf, tuple(int(i) for i in np.unravel_index(int(np.argmax(different)), different.shape))
    return None


def _different(x: HostTensor, y: HostTensor) -> Any:
    different = x.bits() != y.bits() if x.dtype == "bfloat16" else _raw_differ(x, y)
    if x.is_float and different.any():
        different &= ~(np.isnan(x.to_f64()) & np.isnan(y.to_f64()))
    return different


def _raw_differ(x: HostTensor, y: HostTensor) -> Any:
    width = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[x.bits().dtype.itemsize]
    return np.ascontiguousarray(x.bits()).view(width) != np.ascontiguousarray(y.bits()).view(width)
