"""The verification of one program on the `cpu` target, in stages with the cheap ones first; the first failure decides.

1. checked build, smallest supported workload: bounds, races, barriers, and values
2. three launch orders and three poisons: equal bits, or within tolerance where float atomics leave the order open
3. every input family, unseen shapes, shapes that guards admit, and the task's own shapes where the cpu can run them;
   with checks what ran without them alone so far, where that takes little time
4. calls in a row on one state: new inputs and parameters at the same addresses, buffers and memory as earlier calls
   left them; the first call's outputs must remain
5. kernels replaced by no-ops: if the outputs are still correct, the program's kernels do none of the work

Of a program whose calls take long, the further checked runs of 1. and all of 4. are made beside the rest (`beside`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any

from hipwright.errors import CandidateError, GuardFailed
from hipwright.toolchain.cpu.sides import TargetSide, target_sides
from hipwright.verify.bit_differences import first_difference, nondeterministic_verdict
from hipwright.verify.candidate import POISON_A, POISON_B, POISON_C, CallReply, CandidateSession, Rejected, judge
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.cpu.ahead import CasesAhead
from hipwright.verify.cpu.beside import FEW_OUTPUTS, LONG_CALL_S, CallsBeside, another_processor
from hipwright.verify.cpu.cases import FULL_SECONDS, CpuCases
from hipwright.verify.cpu.skipped import budget_spent, too_long
from hipwright.verify.expected import rules
from hipwright.verify.oracle import PlannedWorkload
from hipwright.verify.sequences.call_sequence import SequencedCall, alternating_memory
from hipwright.verify.verification import Gate, elements

FULL_LAUNCH_S = 20.0  # CPU seconds of one launch at the task's own shapes
CHECKED_SECONDS = 0.2  # predicted kernel seconds above which kernels that ran unchecked alone stay so
OWN_SECONDS = 0.15  # predicted kernel seconds of the adversarial families at the task's own shapes together
OTHER_WAVE_SECONDS = 1.5  # predicted kernel seconds above which waves of 32 are not tried for information
INTERLEAVED_SEED = 2
OWN_MEMORY: tuple[dict[str, Any], ...] = ({"poison": POISON_A}, {"memory": "left"}, {"poison": POISON_C})
"""What calls at own shapes find in their memory in turn: poison, what the last call left, plausible values."""
ORDERS = (("forward", 0, POISON_A), ("reverse", 0, POISON_B), ("shuffle", 1, POISON_C))


@dataclass(kw_only=True)
class CpuVerification(CpuCases):
    """The verification of one program on the cpu target.

    beside: makes calls while others are made; long: whether this program's calls take so long that it should.
    """

    beside: CallsBeside = field(init=False)
    long: bool = False

    def run_stages(self, gate: Gate) -> None:
        """All stages in order; the cases of later ones are made while earlier ones run."""
        self.skipped |= self.oracle.skipped
        self.checks |= {"waves": list(self.waves), "gate": gate}
        with CasesAhead(self.oracle) as self.ahead, CallsBeside() as self.beside:
            try:
                self._stages(gate)
            except (Rejected, CandidateError):
                self.beside.judge_begun()  # what would have run before decides
                raise

    def _stages(self, gate: Gate) -> None:
        if gate == "fast":
            for wave in self.waves:
                with self.timed(f"checked, wave {wave}"):
                    self.fast_gate(wave)
            return
        for wave in self.waves:
            with self.timed(f"checked, wave {wave}"):
                self.checked(wave)
        with self.timed("other wave"):
            self.other_wave()
        for side in self.sides:
            self._later(f"side {side.side}, wave {side.wave}", partial(self.other_side, side))
        for index, wave in enumerate(self.waves):
            with self.timed(f"fast, wave {wave}"):
                self.fast(wave, thorough=index == 0)
        self.beside.judge_begun()
        with self.timed("no-op"):
            self.noop()

    def _later(self, stage: str, calls: Callable[[], Callable[[], None]]) -> None:
        """Makes a stage's calls, which return how to judge them: beside later stages where they take long."""

        def timed() -> Callable[[], None]:
            with self.timed(stage):
                return calls()

        if self.long:
            self.beside.begin(timed, lambda judged: judged())
        else:
            timed()()

    # ---------------------------------------------------------------- stages

    def checked(self, wave: int) -> None:
        """Runs the build that checks every access on the smallest workload that the program supports."""
        traffic: dict[str, list[float]] = {}
        with self.session(wave, checked=True) as session:
            answer = self._claimed(session)
            case = self.main_case("given")
            self.judge(case, answer, self._side(wave))
            self.unchecked.ran_checked(answer)
            if wave == self.waves[0]:
                self.long = _takes_long(answer)
                self.begin_making()
            self.note_repeats(answer)
            for entry in answer.stats:
                sums = traffic.setdefault(entry["kernel"], [0.0, 0.0])
                sums[0] += entry["read_bytes"] + entry["write_bytes"]
                sums[1] += entry["argument_bytes"]
            if not self.long:
                self.interleaved(session, self._side(wave))()
        if self.long:
            self._later(f"interleaved, wave {wave}", partial(self.interleaved_alone, wave))
        if wave == self.waves[0]:
            self.checks["traffic"] = {
                kernel: round(max(1.0, moved / held), 3) for kernel, (moved, held) in traffic.items() if held
            }

    def interleaved(self, session: CandidateSession, side: str) -> Callable[[], None]:
        """Runs the checked build in shuffled order, where threads are preempted, on inputs at an odd offset."""
        for family in ("offset", "normal"):
            case = self.main_case(family)
            try:
                answer = session.run(case, order="shuffle", seed=INTERLEAVED_SEED)
            except GuardFailed:
                continue
            return partial(self.judge, case, answer, side)
        return lambda: None

    def interleaved_alone(self, wave: int) -> Callable[[], None]:
        """The same in a session of its own."""
        with self.session(wave, checked=True) as session:
            return self.interleaved(session, self._side(wave))

    def _side(self, wave: int) -> str:
        """What messages say of the checked build's side, where the program can tell it; else ""."""
        return next((one.describe() for one in target_sides(self.parsed.hip) if one.wave == wave), "")

    def fast_gate(self, wave: int) -> None:
        """The fast gate: few cases with every access checked, another poison, and a second call."""
        with self.session(wave, checked=True) as session:
            answer = self._claimed(session)
            self.judge(self.main_case("given"), answer, self._side(wave))
            case = self.main_case("normal")
            self.judge(case, session.run(case, order="shuffle", seed=1, poison=POISON_C), poison=POISON_C)
            for case in self.fast_gate_cases():
                self.attempt(session, case)
            if wave == self.waves[0]:
                self.admitted_shapes(
                    session, lambda: self.admitted_cases(self.parsed, self.program, affordable=self.affordable)
                )
            if not self.oracle.kernelbench:
                self.second_call(session)

    def _claimed(self, session: CandidateSession) -> CallReply:
        """The reply on the first workload that no guard refuses, which becomes `main`."""
        for planned in self.candidates():
            if self.declines(planned, self.parsed, self.program):
                continue
            name = planned.workload.name
            case = self.oracle.case(name, self.first_family(name))
            self.next_cases_ahead(case)
            try:
                answer = session.run(case)
            except GuardFailed as error:
                self.unclaimed(planned, error)
                continue
            self.main = planned
            self.seconds.note(elements(self.main_case("given")), answer.stats)
            return answer
        raise self.claims_nothing()

    def last_resort(self) -> Iterator[PlannedWorkload]:
        """Those that it can run."""
        for planned in self.oracle.last_resort():
            self.skipped.pop(planned.workload.name, None)
            yield planned

    def other_wave(self) -> None:
        """Runs the smallest workload on waves of 32 where no target has them and it is short, for information only."""
        build = self.builds.get((32, True))
        if 32 in self.waves or build is None:
            return
        if (expected := self.predicted(self.main_case("given"))) > OTHER_WAVE_SECONDS:
            self.checks["wave32"] = f"not run: its kernels take about {expected:.1f} s without checks"
            return
        if not build.ok:
            self.checks["wave32"] = "fail: it does not compile"
            return
        try:
            with self.session(32, checked=True) as session:
                case = self.main_case("given")
                judge(case, session.run(case))
            self.checks["wave32"] = "pass"
        except (Rejected, CandidateError) as error:
            verdict = error.verdict if isinstance(error, Rejected) else error.verdict()
            self.checks["wave32"] = f"fail: {verdict.status}: {verdict.message}"

    def other_side(self, side: TargetSide) -> Callable[[], None]:
        """Runs what the program does where device headers compile another side, on the smallest workload."""
        with self.session(side.wave, checked=True, build=self.sides[side]) as session:
            case = self.main_case("normal")
            answer = session.run(case, order="shuffle", seed=INTERLEAVED_SEED)

        def judged() -> None:
            judge(case, answer, side.describe())
            self.checks.setdefault("sides", []).append([side.wave, side.side])
            if side.wave not in self.waves:
                self.checks[f"wave{side.wave}"] = "pass"

        return judged

    def fast(self, wave: int, *, thorough: bool) -> None:
        """Runs the build without checks: orders and poisons, families, unseen and own shapes, a second call."""
        calls = self.beside.run(partial(self.calls_alone, wave)) if thorough and self._calls_beside() else None
        with self.session(wave, checked=False) as session:
            self.orders(session)
            if thorough:
                self.other_shapes(session)
                admitted = self.make_rest()
                self.families(session)
                self.admitted_shapes(session, lambda: self.ahead.result(admitted))
                self.more_checked(wave)
                if quick := all(self.predicted(case) <= CHECKED_SECONDS for case in self.own_cases()):
                    self.own_shapes(session)
                if calls is not None:
                    self.beside.judge_begun()
                    self.judge_sequence(*calls.result())
                elif not self.oracle.kernelbench:
                    self.second_call(session)
        if thorough and not quick:
            with self.session(wave, checked=False, launch_limit_s=FULL_LAUNCH_S) as session:
                self.own_shapes(session)
        if thorough and (left := self.unchecked.left()):
            self.checks["unchecked_kernels"] = left

    def orders(self, session: CandidateSession) -> None:
        """Runs launch orders with poisons, the last of plausible values, and compares the results."""
        case = self.main_case("normal")
        answers = []
        for order, seed, poison in (orders := ORDERS[self.few_calls :]):
            answer = session.run(case, order=order, seed=seed, poison=poison)
            self.judge(case, answer, poison=poison)
            answers.append(answer)
        first = answers[0]
        open_order = any(entry["float_atomics"] for entry in first.stats)
        for other, (order, _, _) in zip(answers[1:], orders[1:], strict=True):
            place = first_difference(first, other)
            if place is not None and not open_order:
                raise Rejected(nondeterministic_verdict(case, place, order, first))
        self.checks["orders"] = "within tolerance (float atomics)" if open_order else "bit-equal"

    def families(self, session: CandidateSession) -> None:
        """Runs every family on the main workload."""
        judged = self.evidence.names() if self.few_calls else ()
        cases = alternating_memory(case for case in self.families_ahead if case.name not in judged)
        self.checks["families"] = [case.family for case, how in cases if self.attempt(session, case, **how)]

    def other_shapes(self, session: CandidateSession) -> None:
        """Runs shapes that the program cannot have been written for."""
        for case in self.ahead.result(self.unseen_ahead):
            self.attempt(session, case)

    def admitted_shapes(self, session: CandidateSession, cases: Callable[[], list[VerificationCase]]) -> None:
        """Runs shapes that the program's guards admit: other sides of its comparisons, and sizes drawn in secret."""
        with self.timed("admitted"):
            before = ""
            for case in cases():
                self.attempt(session, case, **({"memory": "left"} if case.workload == before else {}))
                before = case.workload
            self.unchecked.add_sides(self.admitted.chosen if self.admitted else [])

    def more_checked(self, wave: int) -> None:
        """Runs with checks what takes little time: the task's own shapes, and what ran without checks alone so far."""
        own = [case for case in self.own_cases() if case.family == self.first_family(case.workload)]
        cases = [one for one in (*own, *self.unchecked.cases()) if self.predicted(one) <= CHECKED_SECONDS]
        if not cases:
            return
        with self.session(wave, checked=True, launch_limit_s=FULL_LAUNCH_S) as session, self.unchecked.checking():
            for case in sorted(dict.fromkeys(cases), key=self.predicted):
                if case in own or self.unchecked.wants(case):
                    self.attempt(session, case, poison=POISON_C)

    def own_shapes(self, session: CandidateSession) -> None:
        """Runs the task's own shapes, unless the checked run's counts predict that this takes too long."""
        spent, ran = 0.0, 0
        for case in self.own_cases():
            if case in self.unchecked.checked_cases:
                continue
            expected = self.predicted(case)
            first = case.family == self.first_family(case.workload)
            if expected > FULL_SECONDS or (spent and spent + expected > OWN_SECONDS):
                why = too_long(f"about {expected:.1f}") if expected > FULL_SECONDS else budget_spent(OWN_SECONDS)
                self.skipped[case.workload if first else case.name] = why
                continue
            spent += 0.0 if first else expected
            try:
                ran += self.attempt(session, case, **OWN_MEMORY[ran % len(OWN_MEMORY)])
            except Rejected as rejected:
                if rejected.verdict.status != "timeout" or expected <= CHECKED_SECONDS:
                    raise  # ten times what was predicted, and more: it hangs
                self.skipped[case.workload] = too_long(f"over {FULL_LAUNCH_S:g}")
                return  # the session has ended

    def second_call(self, session: CandidateSession) -> None:
        """Calls in a row on one state (`sequences.call_sequence`), and reads the first call's outputs once more."""
        steps = self.calls_in_a_row()
        self.judge_sequence(steps, session.sequence(steps))

    def _calls_beside(self) -> bool:
        """Whether the calls in a row run beside the others, and their replies wait until they are judged."""
        if not self.long or self.oracle.kernelbench:
            return False
        return sum(rule.expected.size for rule in rules(self.main_case("given").expected.tree)) <= FEW_OUTPUTS

    def calls_alone(self, wave: int) -> tuple[Sequence[SequencedCall], list[CallReply | GuardFailed]]:
        """The calls of `second_call` in a session of their own, with their replies."""
        with self.timed(f"calls in a row, wave {wave}"), self.session(wave, checked=False) as session:
            steps = self.calls_in_a_row()
            outcomes = takewhile(lambda _: not self.beside.ended, session.sequence(steps))
            return steps, list(outcomes)

    def noop(self) -> None:
        """Records whether the outputs are correct without the program's kernels."""
        right = True
        with self.session(None, checked=False) as session:
            for family in ("normal", "given"):
                case = self.main_case(family)
                if not case.counts:
                    continue
                try:
                    judge(case, session.run(case))
                except (Rejected, CandidateError):
                    right = False
                    break
        self.checks["noop_right"] = right


def _takes_long(answer: CallReply) -> bool:
    """Whether a checked call took so long that others run beside it, where there is a processor for them."""
    return another_processor() and sum(entry["seconds"] for entry in answer.stats) >= LONG_CALL_S
