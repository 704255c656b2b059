"""A whole model made faster: profile, programs for the regions that matter, and the model with them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hipwright.api.whole.describe import in_number
from hipwright.api.whole.handle import Clock, ModelHandle, SecondModel, clock_of, model_zygote, opened
from hipwright.api.whole.outcome import ModelOutcome, RegionOutcome
from hipwright.api.whole.plan import budgets
from hipwright.api.whole.profile import ModelProfile, in_parts, profile_model
from hipwright.api.whole.search import NAME, find_programs, ran_on
from hipwright.api.whole.source import ModelSource
from hipwright.errors import TaskError
from hipwright.events import Listener, silent
from hipwright.machine import Machine, machine
from hipwright.records import Program
from hipwright.targets import TARGETS
from hipwright.tensors import Tree

if TYPE_CHECKING:
    from hipwright.api.whole.remote import RegionPrograms

DEPTH = 3
"""How often regions without a program are taken in parts."""
LEAST_AT_MOST = 1.005
"""How many times faster the model must be able to become by a region that is searched."""


@dataclass(frozen=True)
class ModelRequest:
    """What to do. budget: evaluations over all regions; regions: how many are searched at most; max_minutes: of each
    search. metric_tolerance: the share of the metric that may change."""

    source: ModelSource
    targets: tuple[str, ...]
    budget: int = 40
    regions: int = 4
    seed: int = 0
    max_minutes: float | None = None
    metric_tolerance: float = 1e-3
    unsafe: bool = False


def improve_model(request: ModelRequest, *, listener: Listener = silent) -> ModelOutcome:
    """Profiles the model, searches for programs of its best regions, and keeps those with which it stays accurate.

    The same request again takes finished searches from the archive, and goes on with the one that was interrupted.
    Events: "stage" {text}, and those of `find_programs`. Raises TaskError for what the
    model's code does wrong.
    """
    clock = clock_of(request.targets)
    with ExitStack() as stack:
        zygote = stack.enter_context(model_zygote(request.source, clock, unsafe=request.unsafe))
        begun, ahead = time.monotonic(), None
        if clock.gpu is not None:  # what imports for seconds does so while the model is made
            ahead = _ahead(request, clock, stack)
        plain = stack.enter_context(opened(request.source, clock, zygote))
        profile = profile_model(plain, clock, timed=ahead.second.start if ahead else None, listener=listener)
        outcome = ModelOutcome(profile, _chosen(request, profile), notes=_not_measured(clock))
        outcome.seconds["profile"] = time.monotonic() - begun
        if not outcome.regions:
            return outcome
        if ahead is not None:
            ahead.trace(outcome.regions)
        else:
            second = stack.enter_context(SecondModel(request.source, clock, zygote))
            ahead = _Ahead(stack.enter_context(machine(request.targets, unsafe=request.unsafe)), second)
        bench = ahead.bench
        for gpu in bench.gpus.values():
            gpu.baselines = gpu.baselines[:1]  # torch.compile is measured with the whole model, once
        find = partial(
            find_programs,
            clock=clock,
            machine=bench,
            seed=request.seed,
            max_minutes=request.max_minutes,
            listener=listener,
        )
        with _timed(outcome, "searches"):
            find(outcome.regions)
            for _ in range(DEPTH):
                if new := _parts(request, outcome, plain, listener):
                    find(new)
        if outcome.kept:
            with _timed(outcome, "in the model"):
                _placed(request, outcome, plain, ahead, stack, listener)
    return outcome


@dataclass(frozen=True)
class _Ahead:
    """What is started before it is needed."""

    bench: Machine
    second: SecondModel

    def trace(self, regions: Sequence[RegionOutcome]) -> None:
        """Traces the regions' parts in the second model, between timings of the first programs."""
        asked = [{"numbers": [call.number for call in one.region.calls], "text": one.region.text} for one in regions]
        self.second.trace(asked, _turns(self.bench))


def _ahead(request: ModelRequest, clock: Clock, stack: ExitStack) -> _Ahead:
    """The machine, and a second copy of the model, in whose own process programs run."""
    zygote = stack.enter_context(model_zygote(request.source, clock, warm=True, unsafe=request.unsafe))
    zygote.start()
    bench = stack.enter_context(machine(request.targets, unsafe=request.unsafe))
    return _Ahead(bench, stack.enter_context(SecondModel(request.source, clock, zygote)))


@contextmanager
def _turns(bench: Machine) -> Iterator[None]:
    """A context in which nothing is timed on the machine's GPUs."""
    with ExitStack() as stack:
        for gpu in bench.gpus.values():
            stack.enter_context(gpu.timing_lock.shared())
        yield


@contextmanager
def _timed(outcome: ModelOutcome, stage: str) -> Iterator[None]:
    """Adds the block's seconds to those of a stage."""
    begun = time.monotonic()
    try:
        yield
    finally:
        outcome.seconds[stage] = time.monotonic() - begun


def _chosen(request: ModelRequest, profile: ModelProfile) -> list[RegionOutcome]:
    """The best regions, each with its part of the budget."""
    worth = [one for one in profile.regions if profile.at_most(one) >= LEAST_AT_MOST][: request.regions]
    parts = budgets(worth, request.budget)
    return [RegionOutcome(n, one, budget=b) for n, (one, b) in enumerate(zip(worth, parts, strict=True)) if b > 0]


def _parts(request: ModelRequest, outcome: ModelOutcome, plain: ModelHandle, listener: Listener) -> list[RegionOutcome]:
    """The parts of regions for which no program was verified, as regions that are yet to be searched.

    They share as many evaluations as these had, and are at most as many as a request's regions.
    """
    failed = {one.region: one for one in outcome.regions if one.unanswered and one.region in outcome.profile.regions}
    before = set(outcome.profile.regions)
    why = {region: one.why for region, one in failed.items()}
    outcome.profile = in_parts(plain, outcome.profile, why, listener=listener)
    profile = outcome.profile
    worth = [one for one in profile.regions if one not in before and profile.at_most(one) >= LEAST_AT_MOST]
    split = [one for region, one in failed.items() if region not in profile.regions]
    for one in split:
        one.why += "; taken in parts"
    budget = sum(one.budget for one in split)
    chosen = worth[: request.regions]
    shares = zip(chosen, budgets(chosen, budget), strict=True)
    first = len(outcome.regions)
    new = [RegionOutcome(first + n, one, budget=b) for n, (one, b) in enumerate(shares) if b > 0]
    outcome.regions += new
    return new


def _not_measured(clock: Clock) -> list[str]:
    if clock.times == "device":
        return []
    said = "no GPU was used: the model's speed end to end, and torch.compile's, were not measured"
    if clock.times == "processor":
        return [said, "the cpu target says nothing of a program's speed: regions are kept for being right"]
    return [said, f"times and speedups are an ESTIMATE for {clock.where}, from operators and compiled kernels"]


def _placed(
    request: ModelRequest,
    outcome: ModelOutcome,
    plain: ModelHandle,
    ahead: _Ahead,
    stack: ExitStack,
    listener: Listener,
) -> None:
    """Puts the programs into a second copy of the model, which holds no expected output, and judges it."""
    from hipwright.api.whole.place import Trial, gate, measure
    from hipwright.api.whole.remote import RegionPrograms

    clock = outcome.profile.clock
    host = ahead.second.handle()
    programs = stack.enter_context(RegionPrograms(unsafe=request.unsafe))
    listener("stage", {"text": f"replacing {in_number(len(outcome.kept), 'region')}"})
    _install(outcome, host, programs, ahead.bench)
    references = _references(outcome, plain)
    metric = None
    if plain.told["metric"]:
        found: Tree = programs.run(plain, "metric", {})[1]
        metric = float(found)
    trial = Trial(plain, host, programs, references, metric, request.metric_tolerance)
    gate(outcome, trial, listener)
    if clock.gpu is not None and outcome.kept:
        try:
            measure(outcome, trial, listener)
        except TaskError as error:
            outcome.notes.append(f"the model's speed end to end was not measured: {error.message}")


def _install(outcome: ModelOutcome, host: ModelHandle, programs: RegionPrograms, bench: Machine) -> None:
    """Replaces the parts of the kept regions; those of which none can be are dropped."""
    asked = []
    for one in outcome.kept:
        result = one.result
        assert result is not None
        passed = ran_on(result)
        remote = not any(TARGETS.is_gpu(name) for name in passed)
        if remote:
            with bench.open_text(NAME, one.region.text, seed=None) as opened_task:
                programs.add(one.number, Program(text=result.source), opened_task.handle.init_state(0))
        numbers = [call.number for call in one.region.calls]
        asked.append(
            {
                "region": one.number,
                "numbers": numbers,
                "text": one.region.text,
                "program": result.source,
                "passed": passed,
                "searched": list(result.detail.run.targets),
                "remote": remote,
            }
        )
    stay = host.ask("install", {"regions": asked})[0]["stay"]
    for one in outcome.kept:
        refused: dict[str, str] = stay.get(str(one.number), {})
        if set(refused) >= set(one.region.paths):
            one.drop(next(iter(refused.values())))


def _references(outcome: ModelOutcome, plain: ModelHandle) -> dict[int, Tree]:
    """What the plain model gives on the given inputs, and on these with their elements in another order."""
    told, given = plain.ask("reference", {"seed": 0})
    outcome.gate["truth"] = "eager" if told["why"] else "float64"
    if told["why"]:
        outcome.notes.append(f"the model does not run in float64, eager is the truth: {told['why']}")
    found = {0: given}
    seed = secrets.randbelow(1 << 30) + 1
    try:
        found[seed] = plain.ask("reference", {"seed": seed})[1]
    except TaskError:  # inputs whose order matters
        outcome.notes.append("outputs were compared on the given inputs alone: shuffled ones are refused")
    return found
