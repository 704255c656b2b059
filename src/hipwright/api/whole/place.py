"""Programs in the model: accuracy gate, end-to-end times, and regions taken out that fail or bring nothing."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hipwright.api.whole.describe import in_number
from hipwright.api.whole.gate import OutputCheck, check_outputs
from hipwright.api.whole.handle import ModelHandle
from hipwright.api.whole.outcome import ModelOutcome, RegionOutcome
from hipwright.api.whole.plan import WHOLE
from hipwright.api.whole.remote import RegionPrograms
from hipwright.errors import TaskError
from hipwright.events import Listener
from hipwright.tensors import Tree

ROUNDS = 9
BLOCK_MS = 50.0
"""Milliseconds of one block of calls."""
LEAST_GAIN = 1.002
"""How many times slower the model must be without a region that stays in it."""


@dataclass
class Trial:
    """A model with programs (host), the plain one (plain), and what the plain one gives. references: by seed of inputs;
    metric: of the plain model, None without one; tolerance: the share of it that may change."""

    plain: ModelHandle
    host: ModelHandle
    programs: RegionPrograms
    references: dict[int, Tree]
    metric: float | None
    tolerance: float

    def run(self, regions: Sequence[RegionOutcome]) -> tuple[list[OutputCheck], dict[str, Any]]:
        """Checks of all outputs with these regions' programs, and counts of the calls on the given inputs."""
        self.host.ask("choose", {"regions": [one.number for one in regions]})
        checks: list[OutputCheck] = []
        counts: dict[str, Any] = {}
        for seed, reference in self.references.items():
            told, found = self.programs.run(self.host, "forward", {"seed": seed})
            checks += check_outputs(found, reference)
            counts = counts or told["counts"]
        return checks, counts

    def metric_with(self, regions: Sequence[RegionOutcome]) -> float | None:
        """The metric with these regions' programs."""
        if self.metric is None:
            return None
        self.host.ask("choose", {"regions": [one.number for one in regions]})
        found: Any = self.programs.run(self.host, "metric", {})[1]
        return float(found)

    def keeps(self, metric: float | None) -> bool:
        """Whether a metric is the plain model's within the tolerance."""
        if metric is None or self.metric is None:
            return True
        return abs(metric - self.metric) <= self.tolerance * max(abs(self.metric), 1e-12)


def gate(outcome: ModelOutcome, trial: Trial, listener: Listener) -> None:
    """Takes regions out until the outputs and the metric pass; those first that fail by themselves, then the last."""
    alone = False
    while True:
        kept = outcome.kept
        if not kept:
            return
        listener("stage", {"text": f"the model with {in_number(len(kept), 'region')} replaced: its outputs"})
        failed = _tried(outcome, trial, kept)
        if not failed:
            return
        if not alone:
            alone = True
            for one in kept if len(kept) > 1 else []:
                if why := _failure(trial, [one]):
                    one.drop(f"the accuracy gate: {why}")
            if len(outcome.kept) < len(kept):
                continue
        kept[-1].drop(f"the accuracy gate: {failed}")


def _tried(outcome: ModelOutcome, trial: Trial, kept: Sequence[RegionOutcome]) -> str:
    """Runs the model with these regions, and notes what it gave; why it fails, "" where it passes."""
    try:
        checks, counts = trial.run(kept)
        metric = trial.metric_with(kept)
    except TaskError as error:
        return error.message
    worst = max(checks, key=lambda one: one.error / one.limit if one.limit else float(bool(one.why)))
    outcome.gate |= {
        "passed": not any(one.why for one in checks),
        "inputs": len(trial.references),
        "error": worst.error,
        "eager_error": worst.eager,
        "limit": worst.limit,
    }
    if trial.metric is not None:
        outcome.metric = {"eager": trial.metric, "programs": metric, "passed": trial.keeps(metric)}
    for one in kept:
        found = counts.get(str(one.number), {"calls": 0, "fallbacks": {"no part was replaced": 1}})
        one.calls, one.fallbacks = found["calls"], found["fallbacks"]
        if not one.calls:
            one.drop(f"its calls stay the model's own: {next(iter(one.fallbacks), 'none was made')}")
    return _said(trial, checks, metric)


def _said(trial: Trial, checks: Sequence[OutputCheck], metric: float | None) -> str:
    """Why outputs or the metric do not pass, with what they would have to be; "" where they do."""
    for number, one in enumerate(checks):
        if one.why:
            shuffled = number >= len(checks) // len(trial.references)
            told = f"output {one.output}{' of shuffled inputs' if shuffled else ''}: {one.why}"
            return f"{told} ({one.error:.2g}, at most {one.limit:.2g})" if one.limit else told
    if trial.keeps(metric):
        return ""
    return f"the metric becomes {metric:.6g} from {trial.metric:.6g}, and {trial.tolerance:g} of it may change"


def _failure(trial: Trial, regions: Sequence[RegionOutcome]) -> str:
    try:
        checks, _ = trial.run(regions)
        metric = trial.metric_with(regions)
    except TaskError as error:
        return error.message
    return _said(trial, checks, metric)


# ---------------------------------------------------------------- end to end, on a GPU


def measure(outcome: ModelOutcome, trial: Trial, listener: Listener) -> None:
    """Takes out regions without which the model is no slower, then times it against eager and torch.compile.

    Blocks of calls take turns. A model that is not faster than eager loses all programs.
    """
    for one in reversed(outcome.kept):
        others = [other for other in outcome.kept if other is not one]
        listener("stage", {"text": f"the model without region {one.number}"})
        slower, counts = _slower_without(trial, outcome.kept, others)
        if slower < LEAST_GAIN:
            found = how_called(counts, one.number)
            said = "it brings nothing end to end: the model is no slower without it"
            one.drop(f"{said} ({slower:.3f}x{f'; {found}' if found else ''})")
    if not outcome.kept:
        return
    listener("stage", {"text": "the model against eager and torch.compile"})
    trial.host.ask("choose", {"regions": [one.number for one in outcome.kept]})
    outcome.times = _compared(trial)
    if outcome.times["speedup"]["eager"] <= 1.0:
        for one in outcome.kept:
            one.drop("the whole model is not faster than eager with the programs")


def _slower_without(
    trial: Trial, all_: Sequence[RegionOutcome], others: Sequence[RegionOutcome]
) -> tuple[float, dict[str, Any]]:
    """(how many times slower the model is without a region, what the calls of a block with it were, by region): the
    median of rounds in turn."""

    def block(regions: Sequence[RegionOutcome], calls: int) -> dict[str, Any]:
        trial.host.ask("choose", {"regions": [one.number for one in regions]})
        return trial.host.ask("block", {"calls": calls, "side": "model"})[0]

    first = block(all_, 3)
    calls = _calls(first["ms"])
    slower = statistics.median(block(others, calls)["ms"] / block(all_, calls)["ms"] for _ in range(ROUNDS))
    return slower, block(all_, calls).get("counts", {})


def how_called(counts: Mapping[str, Any], number: int | None = None) -> str:
    """What the calls of a block were by `ReplacedModel.counts`, in words: of the model as one graph, else of one region
    or of all of them; "" where nothing is known."""
    regions = {name: one for name, one in counts.items() if name != WHOLE}
    own = calls_line(_together(regions) if number is None else regions.get(str(number), {}))
    whole = counts.get(WHOLE, {"replays": 0, "launched": {}, "parts": 0})
    calls = whole["replays"] + sum(whole["launched"].values())
    if not calls:
        return own
    line = f"{whole['replays']} of {calls} calls of the model replay one graph of all of it"
    if not whole["launched"]:
        return line
    parts = f"{whole['parts']} calls of its parts replay one of theirs" if whole["parts"] else ""
    others = f"others: {next(iter(whole['launched']))}"
    return "; ".join(filter(None, (line, others, parts, own and f"of programs, {own}")))


def calls_line(counts: Mapping[str, Any]) -> str:
    """What a region's calls were while it was timed (`ReplacedModel.counts`), in words; "" where nothing is known."""
    own, calls = sum(counts.get("fallbacks", {}).values()), counts.get("calls", 0)
    if not calls + own:
        return ""
    line = f"{counts.get('replays', 0)} of {calls + own} calls replay a graph of the GPU"
    why = next(iter({**counts.get("fallbacks", {}), **counts.get("launched", {})}), "")
    return f"{line}; others: {why}" if why else line


SIDES = {
    "eager": ("plain", "model"),
    "compile": ("plain", "compile"),
    "programs": ("host", "model"),
    "eager captured": ("plain", "graph"),
    "programs captured": ("host", "graph"),
}
"""Of each time its handle of the trial and its side of the host; captured ones as CUDA graphs."""
HOW = {
    "eager": "the model as it is, launched operator by operator",
    "compile": "torch.compile in its default mode, without graphs of the GPU",
    "programs": "the model with its drop-ins, as a call of it runs",
    "eager captured": "the whole model as one graph of the GPU on its own inputs",
    "programs captured": "the whole model with its drop-ins as one graph, their kernels launched into it",
}
"""What is timed as each side."""


def _compared(trial: Trial) -> dict[str, Any]:
    """{side: median ms a call, "speedup": {baseline: median over the rounds of baseline / programs}, "missing": {side:
    why}, "how": {side: what was timed}}. The captured programs are compared with the captured eager model alone."""

    def block(name: str, calls: int) -> dict[str, Any]:
        handle, side = SIDES[name]
        return getattr(trial, handle).ask("block", {"calls": calls, "side": side})[0]  # type: ignore[no-any-return]

    first = {name: block(name, 3) for name in SIDES}
    missing = {name: told["missing"] for name, told in first.items() if "missing" in told}
    calls = _calls(first["eager"]["ms"])
    sides: dict[str, list[float]] = {name: [] for name in SIDES if name not in missing}
    counts: dict[str, Any] = {}
    for _ in range(ROUNDS):
        for name, found in sides.items():
            told = block(name, calls)
            found.append(told["ms"])
            counts = told.get("counts", {}) if name == "programs" else counts
    speedup = {}
    for name, other in (("eager", "programs"), ("compile", "programs"), ("eager captured", "programs captured")):
        if name in sides and other in sides:
            speedup[name] = statistics.median(a / b for a, b in zip(sides[name], sides[other], strict=True))
    how = {name: text for name, text in HOW.items() if name in sides}
    how["programs"] = how_called(counts) or how["programs"]
    times = {name: statistics.median(ms) for name, ms in sides.items()}
    return {**times, "speedup": speedup, "missing": missing, "how": how}


def _together(counts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The counts of all regions as those of one."""
    found: dict[str, Any] = {"calls": 0, "replays": 0, "fallbacks": {}, "launched": {}}
    for one in counts.values():
        for name, value in one.items():
            more = isinstance(value, dict)
            found[name] = dict(Counter(found[name]) + Counter(value)) if more else found[name] + value
    return found


def _calls(ms: float) -> int:
    return max(1, min(1000, round(BLOCK_MS / max(ms, 1e-3))))
