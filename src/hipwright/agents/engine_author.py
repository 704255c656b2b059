"""The engine mind: the built-in engine's proposals, guided by the archive and by the run's own trials. No model.

    tuned             choices that an earlier search on this device found best for these shapes are the first answer
    archive parents   the best programs of earlier runs of the task are tried right after the engine's own choices
    retrieval         what is drawn anew takes, now and then, the value that served a similar verified kernel
    failure memory    a draw that repeats a remembered failure or a clear loss is drawn again
    screener          of several draws, the one that promises most is proposed

Each can be switched off by the run setting {"agents": {"without": [...]}}. What the archive gave is in that setting
too (`pipeline.snapshot`), so a proposal depends on the run's record, its view and the random numbers only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from hipwright.agents.failure_memory import FailureMemory
from hipwright.agents.screening.screener import EngineScreener, static_problem
from hipwright.archive.log import AUTHOR_NOTE
from hipwright.records import Program
from hipwright.search import EngineSource, Proposal, ProposalRequest, SearchView
from hipwright.search.operators import Choices, complete, operator

DRAWS = 4
"""Draws for one ask, of which the screener proposes one."""
RETRIEVED = 0.35
"""How often something drawn anew takes a similar kernel's value instead."""
REDRAWS = 6

_FRESH = {"mutate", "random"}  # operators that draw values anew; the others move or mix what is there


class EngineAuthor:
    """A ProposalSource around the engine's.

    settings: what the run's setting "agents" holds (`pipeline.snapshot`); targets: where programs are judged. problem:
    the screener's static check, in place of its own.
    """

    name = "optimizer"

    def __init__(
        self,
        engine: EngineSource,
        settings: Mapping[str, Any],
        targets: Sequence[str] = (),
        *,
        problem: Callable[[Program], str] | None = None,
    ) -> None:
        self.engine = engine
        self.without = frozenset(settings.get("without", ()))
        self._tuned: Mapping[str, Any] = settings.get("tuned") or {} if self._has("tuned") else {}
        self._known = _choices_of(settings, "known") if self._has("archive_parents") else []
        self._hints = hints(settings) if self._has("retrieval") else {}
        self.problem = problem or partial(static_problem, targets=tuple(targets))
        self._screener = EngineScreener(engine.space, self.problem) if self._has("screener") else None
        self._memory: tuple[SearchView, FailureMemory] | None = None
        self._written: dict[tuple[tuple[str, Any], ...], Proposal] = {}

    def initial(self) -> Sequence[dict[str, Any]]:
        """Tuned choices, the engine's own, then those of the best programs of earlier runs."""
        actions = list(self.engine.initial())
        seen = [complete(self.engine.space, {})]
        if self._tuned and (tuned := complete(self.engine.space, self._tuned["choices"])) not in seen:
            seen.append(tuned)
            actions.insert(0, {"choices": tuned, "tuned": self._tuned["device"]})
        for choices in self._known:
            within = complete(self.engine.space, choices)
            if within not in seen:
                seen.append(within)
                actions.append({"choices": within})
        return actions

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Nothing here takes long enough."""

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        """The most promising of a few draws, with how it came about in its notes."""
        if ask.expansion.operator == "default":
            tuned = {"tuned": on} if (on := ask.expansion.action.get("tuned")) else {}
            return replace(self.engine.propose(ask, rng), notes={AUTHOR_NOTE: "engine", **tuned})
        if self._screener is None:
            choices, notes = self._draw(ask, rng)
            return replace(self._write(choices), notes=notes)
        draws = [self._draw(ask, rng) for _ in range(DRAWS)]
        chosen, made, prediction = self._screener.choose(ask, [choices for choices, _ in draws], self._write)
        told = {"drawn": len(draws), **prediction.notes()}
        return replace(made, notes={**draws[chosen][1], "screener": told})

    # ---------------------------------------------------------------- drawing

    def _has(self, part: str) -> bool:
        return part not in self.without

    def _draw(self, ask: ProposalRequest, rng: random.Random) -> tuple[Choices, dict[str, Any]]:
        memory, redrawn = self._remembered(ask.view), 0
        while True:
            choices, taken = self._drawn(ask, rng)
            if memory is None or redrawn == REDRAWS or rng.random() >= memory.weight(choices):
                break
            redrawn += 1
        notes: dict[str, Any] = {AUTHOR_NOTE: "engine"}
        if taken:
            notes["retrieved"] = taken
        if redrawn:
            notes["redrawn"] = redrawn
        return choices, notes

    def _drawn(self, ask: ProposalRequest, rng: random.Random) -> tuple[Choices, list[str]]:
        """One draw of the ask's operator, and the keys whose value came from a similar kernel."""
        space, name = self.engine.space, ask.expansion.operator
        parents = [parent.choices for parent in ask.parents]
        drawn, taken = operator(name)(space, parents, rng), list[str]()
        if self._hints and name in _FRESH:
            before = complete(space, parents[0] if parents else {})
            for key in sorted(drawn):
                if (name == "random" or drawn[key] != before[key]) and rng.random() < RETRIEVED:
                    offers = [o for o in self._hints.get(meaning(key), ()) if o[0] in space[key].options]
                    if offers:
                        drawn[key] = rng.choices([v for v, _ in offers], [w for _, w in offers])[0]
                        taken.append(key)
        return complete(space, {**drawn, **ask.expansion.action.get("choices", {})}), taken

    def _write(self, choices: Choices) -> Proposal:
        key = tuple(sorted(choices.items()))
        if key not in self._written:
            self._written[key] = self.engine.written(choices)
        return self._written[key]

    def _remembered(self, view: SearchView) -> FailureMemory | None:
        if not self._has("failure_memory"):
            return None
        if self._memory is None or self._memory[0] is not view:
            self._memory = view, FailureMemory.of(view)
        return self._memory[1]


def meaning(key: str) -> str:
    """What a choice decides, whichever kernel it belongs to: "map:softmax_2" -> "map", "BLOCK" -> "BLOCK".

    Of a split the last word stays: a sum is not split for the reasons that a rest is.
    """
    kind, _, subject = key.partition(":")
    return f"split:{subject.rpartition('_')[2]}" if kind == "split" else kind


def hints(settings: Mapping[str, Any]) -> dict[str, list[tuple[Any, float]]]:
    """What similar kernels chose, by meaning: (value, likeness)."""
    found: dict[str, list[tuple[Any, float]]] = {}
    likeness = settings.get("likeness", {})
    for program, choices in zip(settings.get("neighbours", ()), _choices_of(settings, "neighbours"), strict=True):
        for key, value in sorted(choices.items()):
            found.setdefault(meaning(key), []).append((value, max(float(likeness.get(program, 1.0)), 1e-3)))
    return found


def _choices_of(settings: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    by_program = settings.get("choices", {})
    return [dict(by_program.get(program, {})) for program in settings.get(name, ())]
