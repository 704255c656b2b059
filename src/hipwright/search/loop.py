"""The search loop: rounds of propose, evaluate and decide; each step is a durable event before the next begins.

A resumed run repeats the same steps and takes from the log whatever it holds, so a kill at any moment loses at most the
evaluations in progress and repeats no completed one (docs/search.md).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import msgspec

from hipwright.archive import Archive, Confirmed, Evaluated, Finished, LogEntry, Proposed, RunLog, as_stored
from hipwright.errors import BadInput, ProviderError
from hipwright.events import Listener, silent
from hipwright.records import Decision, Evaluation, Expansion, Program, Record, Run, content_key
from hipwright.search import counters, fallback, stop
from hipwright.search.claims import Claims
from hipwright.search.confirm import Confirm, confirmation, ranking
from hipwright.search.drawing import draw
from hipwright.search.interfaces import (
    INFRASTRUCTURE,
    EvaluatorLike,
    Proposal,
    ProposalRequest,
    ProposalSource,
    SearchPolicy,
)
from hipwright.search.progress import progress
from hipwright.search.view import FALLBACK, START, SearchView, Trial

ROUND = 4
"""Proposals per round (run setting "round"). Independent of the number of workers, and therefore so is the log."""

ATTEMPTS = 3
"""Evaluations of one program while the fault is the machine's."""

_POLL_SECONDS = 0.1


class Interrupted(Exception):
    """The user requested a stop; never leaves this module."""


class OutOfTime(Exception):
    """`max_minutes` have passed; never leaves this module."""


@dataclass
class Search:
    """One run in progress. log: the run's events in the archive so far; the caller holds the run's lock.

    shared: searches of the same archive run at the same time (search/claims.py).
    """

    archive: Archive
    run: Run
    log: RunLog
    policy: SearchPolicy
    source: ProposalSource
    evaluator: EvaluatorLike
    workers: int = 1
    listener: Listener = silent
    confirm: Confirm | None = None
    counters: counters.CountersLike | None = None
    max_minutes: float | None = None
    stop_requested: Callable[[], bool] = lambda: False
    shared: bool = False
    view: SearchView = field(init=False)
    claims: Claims = field(init=False)

    def __post_init__(self) -> None:
        initial = tuple(self.source.initial())
        if not initial:
            raise BadInput("the source has nothing to start from")
        self.view = SearchView(self.run.seed, self.run.budget, initial=initial, settings=self.run.settings)
        self.claims = Claims(self.archive, self.run.id, self.shared, self._check_stop)
        self._deadline = None if self.max_minutes is None else time.monotonic() + 60 * self.max_minutes

    def go(self) -> tuple[Finished, bool]:
        """Runs to the end. Returns how it ended, and whether it was interrupted (and can be resumed)."""
        if self.log.finished is not None:
            return self.log.finished, False
        try:
            reason, best = self._rounds(), self._winner()
            while best is None and not self._overdue() and self._refuted():
                self._rounds()
                best = self._winner()
        except (Interrupted, KeyboardInterrupt):
            return self._paused("interrupted"), True
        except ProviderError as error:
            if not error.retryable:
                raise
            self.listener("stage", {"text": f"paused: {error.message}"})
            return self._paused("provider"), True
        finished = self._ending(reason, best)
        self._append([LogEntry("finished", -1, finished.to_dict())])
        return finished, False

    def _paused(self, reason: str) -> Finished:
        """Logs an interruption and returns the provisional result; `resume` continues the run."""
        best = self._provisional().best
        self._append([LogEntry("interrupted", -1, {"evaluations": len(self.log.evaluated), "why": reason})])
        return self._ending(reason, best)

    # ---------------------------------------------------------------- rounds

    def _rounds(self) -> str:
        while (reason := None if self._owes_answer() else stop.done(self.view)) is None:
            try:
                self._check_stop()
                proposals = self._proposals()
                self._evaluate_all(proposals)
            except OutOfTime:
                proposals, reason = self._current_round(), "max_minutes"
            trials, entries = self._decisions(proposals)
            self._append(entries)
            self.view = self.view.with_trials(trials)
            if reason is not None:
                break
        return reason

    def _owes_answer(self) -> bool:
        """Whether the engine's first answer was refused, nothing passed yet, and the source can give up parts of it."""
        return bool(getattr(self.source, "falls_back", False)) and fallback.owed(self.view)

    def _refuted(self) -> bool:
        """Takes in that verified programs failed the second verification; whether another program is owed for it."""
        self.view = fallback.refuted(self.view, {n: one.evaluation for n, one in self.log.confirmed.items()})
        return self._owes_answer()

    def _current_round(self) -> list[Proposed]:
        """The logged proposals of the current round; [] between rounds."""
        return [p for _, p in sorted(self.log.proposed.items()) if p.round == self.view.next_round]

    def _proposals(self) -> list[Proposed]:
        """The next round's proposals: from the log, else made now and logged in one transaction."""
        if logged := self._current_round():
            return logged
        current = self.view.next_round
        k = min(int(self.run.settings.get("round", ROUND)), self.run.budget - self.view.spent)
        if self._owes_answer():
            expansions = [Expansion(number=self.view.next_number, operator=FALLBACK, seed=self.run.seed)]
        else:
            expansions = self.policy.select(self.view, k, random.Random(f"{self.run.seed}/select/{current}"))
            self._count(expansions)
            expansions = expansions[: max(self.run.budget - self.view.spent, 1)]
        asks = [ProposalRequest(e, tuple(self._parent(key) for key in e.parents), self.view) for e in expansions]
        self.source.prepare(asks)
        proposals: list[Proposed] = []
        programs: dict[str, Program] = {}
        for ask in asks:
            proposed, program = self._propose(ask, current, proposals)
            proposals.append(proposed)
            if program is not None:
                programs[proposed.program] = program
        entries = [LogEntry("proposed", p.number, p.to_dict()) for p in proposals]
        self._append(entries, list(programs.values()))
        return [self.log.proposed[p.number] for p in proposals]

    def _count(self, expansions: Sequence[Expansion]) -> None:
        """Adds to the view what limits the round's parents: from the log, else read now and logged at once."""
        current = self.view.next_round
        if self.counters is not None and not any(one.round == current for one in self.log.counted.values()):
            read = counters.read(self.view, expansions, self.counters, self.archive.program, self.listener)
            self._append([LogEntry("counted", number, one.to_dict()) for number, one in read])
        known = {one.program: one for one in self.log.counted.values() if one.round == current}
        self.view = self.view.with_counted(known)

    def _propose(
        self, ask: ProposalRequest, current: int, before: Sequence[Proposed]
    ) -> tuple[Proposed, Program | None]:
        """Makes one proposal; draws again, up to TRIES times, while it repeats a known program."""
        known = {t.proposed.program: t.number for t in self.view.trials if t.proposed.evaluable}
        known |= {p.program: p.number for p in before if p.evaluable}
        made, failed = draw(self.source, ask, known)
        if made is None:
            return msgspec.structs.replace(failed, round=current), None
        key = made.program.key
        proposed = Proposed(
            expansion=ask.expansion,
            round=current,
            program=key,
            choices=made.choices,
            notes=made.notes,
            duplicate_of=known.get(key),
        )
        return proposed, made.program

    def _parent(self, key: str) -> Proposal:
        choices = next((t.proposed.choices for t in self.view.trials if t.proposed.program == key), {})
        return Proposal(program=self.archive.program(key), choices=choices)

    # ---------------------------------------------------------------- evaluation

    def _evaluate_all(self, proposals: Sequence[Proposed]) -> None:
        """Evaluates what the log lacks; each result is durable at once."""
        todo = [p for p in proposals if p.evaluable and p.number not in self.log.evaluated]
        for proposed, evaluated in self._results(todo):
            key = self._cache_key(proposed.program)
            reusable = evaluated.evaluation.fault not in INFRASTRUCTURE
            self._append([LogEntry("evaluated", proposed.number, evaluated.to_dict(), key if reusable else None)])
            self.claims.end(key)

    def _results(self, todo: Sequence[Proposed]) -> Iterator[tuple[Proposed, Evaluated]]:
        """Yields results as they complete; at most `workers` evaluations at a time, in this thread for one worker."""
        evaluate_many = getattr(self.evaluator, "evaluate_many", None)
        if evaluate_many is not None and len(todo) > 1 and not self.shared:
            yield from self._batched(todo, evaluate_many)
            return
        if self.workers <= 1:
            for proposed in todo:
                self._check_stop()
                yield proposed, self._evaluated(proposed.program)
            return
        waiting, running = list(todo), dict[Future[Evaluated], Proposed]()
        pool = ThreadPoolExecutor(self.workers)
        try:
            while waiting or running:
                while waiting and len(running) < self.workers and not (self.stop_requested() or self._overdue()):
                    proposed = waiting.pop(0)
                    running[pool.submit(self._evaluated, proposed.program)] = proposed
                for future in wait(running, _POLL_SECONDS, FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
                if not running:
                    self._check_stop()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _batched(
        self, todo: Sequence[Proposed], evaluate_many: Callable[[Sequence[Program]], Sequence[Evaluation]]
    ) -> Iterator[tuple[Proposed, Evaluated]]:
        """Evaluates a round as one batch; cached programs and machine faults go through `_evaluated` one by one."""
        self._check_stop()
        fresh = [p for p in todo if self.archive.evaluation(self._cache_key(p.program)) is None]
        found = evaluate_many([self.archive.program(p.program) for p in fresh]) if fresh else []
        judged = {p.number: as_stored(one) for p, one in zip(fresh, found, strict=True)}
        for proposed in todo:
            one = judged.get(proposed.number)
            if one is None or one.fault in INFRASTRUCTURE:
                yield proposed, self._evaluated(proposed.program)
            else:
                yield proposed, Evaluated(evaluation=one)

    def _evaluated(self, program: str) -> Evaluated:
        """One evaluation: another run's, else made now and repeated while the machine is at fault."""
        if (known := self.claims.known(self._cache_key(program))) is not None:
            return Evaluated(evaluation=known, cached=True)
        attempts, candidate = 0, self.archive.program(program)
        # nothing is chosen in a run of one evaluation, so that the one may serve as the second verification too
        alone = self.run.budget == 1 and not self.log.evaluated and START not in self.view.initial[0]
        secret = self.confirm if alone else None
        while True:
            attempts += 1
            evaluation = as_stored((secret or self.evaluator.evaluate)(candidate))
            if evaluation.fault not in INFRASTRUCTURE or attempts == ATTEMPTS:
                return Evaluated(evaluation=evaluation, attempts=attempts, secret=secret is not None)

    def _cache_key(self, program: str) -> str:
        return content_key(self.run.task, program, ",".join(self.run.targets), self.evaluator.fingerprint)

    # ---------------------------------------------------------------- decisions

    def _decisions(self, proposals: Sequence[Proposed]) -> tuple[list[Trial], list[LogEntry]]:
        """Decides a round in proposal order, each decision seeing the earlier ones; entries: what the log lacks."""
        view, trials, entries = self.view, list[Trial](), list[LogEntry]()
        for proposed in proposals:
            evaluated = self.log.evaluated.get(proposed.number)
            if evaluated is None and proposed.evaluable:
                continue  # the round was stopped before this evaluation
            evaluation = evaluated.evaluation if evaluated else None
            decision = self.log.decided.get(proposed.number)
            if decision is None:
                decision = self._decide(view, Trial(proposed, evaluation))
                entries.append(LogEntry("decided", proposed.number, decision.to_dict()))
            trials.append(Trial(proposed, evaluation, decision))
            view = self.view.with_trials(trials)
        return trials, entries

    def _provisional(self) -> SearchView:
        """The view as if the current round ended here; reported by an interrupted run, and not logged."""
        return self.view.with_trials(self._decisions(self._current_round())[0])

    def _decide(self, view: SearchView, trial: Trial) -> Decision:
        if trial.evaluation is not None:
            return self.policy.accept(view, trial, trial.evaluation)
        same = trial.proposed.duplicate_of
        reason = f"same program as #{same}" if same is not None else f"no program: {trial.proposed.error}"
        return Decision(number=trial.number, program=trial.proposed.program, kept=False, reason=reason)

    # ---------------------------------------------------------------- end

    def _winner(self) -> Trial | None:
        """The first of `ranking` that passes the second verification, where the run has one; None if none passes."""
        if self.confirm is None:
            return self.view.best
        for trial in ranking(self.view):
            if trial.number not in self.log.confirmed:
                if self.stop_requested():
                    raise Interrupted
                confirmed = self._confirmed(trial, self.confirm)
                self._append([LogEntry("confirmed", trial.number, confirmed.to_dict())])
            if self.log.confirmed[trial.number].passed:
                return trial
        return None

    def _confirmed(self, trial: Trial, confirm: Confirm) -> Confirmed:
        """The second verification, now; the first one where it was on secret inputs itself."""
        first = self.log.evaluated[trial.number]
        if first.secret:
            return Confirmed(program=trial.proposed.program, passed=True, evaluation=first.evaluation)
        return confirmation(confirm, self.archive.program(trial.proposed.program))

    def _ending(self, reason: str, best: Trial | None) -> Finished:
        evaluation = best.evaluation if best else None
        return Finished(
            reason=reason,
            best=best.proposed.program if best else "",
            number=best.number if best else -1,
            score=evaluation.score if evaluation else None,
            evaluations=len(self.log.evaluated),
            rounds=self.view.next_round,
        )

    # ---------------------------------------------------------------- clock and log

    def _overdue(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _check_stop(self) -> None:
        if self.stop_requested():
            raise Interrupted
        if self._overdue():
            raise OutOfTime

    def _append(self, entries: Sequence[LogEntry], records: Sequence[Record] = ()) -> None:
        """Stores events durably, adds them to the log, then notifies the listener."""
        if not entries:
            return
        for event in self.archive.append_all(self.run.id, entries, records):
            self.log.add(event)
            self.listener(event.kind, progress(event, self.log, self.run.budget))
