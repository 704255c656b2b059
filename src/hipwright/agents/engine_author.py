"""The engine as an author: its proposals guided by the archive and by the run's own trials, without any model.

    tuned             tries first the choices that an earlier search on this device found best for these shapes
    archive_parents   tries the best programs of earlier runs of the task right after the engine's defaults
    retrieval         sometimes replaces a redrawn value by the one that a similar verified kernel uses
    counters          prefers choices that may relieve what limits the parent, where the run counts (search/moves.py)
    failure_memory    redraws what repeats a remembered failure or slowdown
    screener          proposes the most promising of several draws

The run setting {"agents": {"without": [...]}} switches parts off. The same setting holds the archive's snapshot
(`pipeline.snapshot`), so a proposal depends on the run's record, its view and the random numbers only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from hipwright.agents.failure_memory import FailureMemory
from hipwright.agents.screening.screener import EngineScreener, static_problem
from hipwright.archive.choice_names import current_choices
from hipwright.archive.log import AUTHOR_NOTE
from hipwright.records import Program
from hipwright.search import EngineSource, Proposal, ProposalRequest, SearchView
from hipwright.search.moves import EVERY_MOVE, MOVE, MOVES, Move, moved
from hipwright.search.operators import Choices, complete, operator
from hipwright.search.view import FALLBACK

DRAWS = 4
"""Draws per proposal, of which the screener selects one."""
RETRIEVED = 0.35
"""The probability that a redrawn choice takes a similar kernel's value."""
DIRECTED = 0.6
"""The probability that a variation of a parent whose limit is known changes a choice of that limit's moves."""
REDRAWS = 6
"""The most redraws for the failure memory."""

_VARIED = {"mutate", "neighbour"}  # operators that change the first parent
_FRESH = {"mutate", "random"}  # operators that redraw values; the others move or mix the parents' values


class EngineAuthor:
    """A ProposalSource around EngineSource.

    settings: the run setting "agents" (`pipeline.snapshot`); targets: where programs are judged. static_check: replaces
    the screener's own (program -> problem, "" for none).
    """

    name = "optimizer"

    def __init__(
        self,
        engine: EngineSource,
        settings: Mapping[str, Any],
        targets: Sequence[str] = (),
        *,
        static_check: Callable[[Program], str] | None = None,
    ) -> None:
        self.engine = engine
        self.without = frozenset(settings.get("without", ()))
        self._tuned: Mapping[str, Any] = settings.get("tuned") or {} if self._has("tuned") else {}
        self._known = _choices_of(settings, "known") if self._has("archive_parents") else []
        self._similar_values = similar_values(settings) if self._has("retrieval") else {}
        self.static_check = static_check or partial(static_problem, targets=tuple(targets))
        self._screener = EngineScreener(engine.space, self.static_check) if self._has("screener") else None
        self._memory: tuple[SearchView, FailureMemory] | None = None
        self._written: dict[tuple[tuple[str, Any], ...], Proposal] = {}

    @property
    def falls_back(self) -> bool:
        """Whether the engine gives up parts of a refused first answer."""
        return self.engine.falls_back

    def initial(self) -> Sequence[dict[str, Any]]:
        """Returns the tuned choices, the engine's defaults, then those of the best programs of earlier runs."""
        actions = list(self.engine.initial())
        seen = [complete(self.engine.space, {})]
        if self._tuned and (tuned := complete(self.engine.space, current_choices(self._tuned["choices"]))) not in seen:
            seen.append(tuned)
            actions.insert(0, {"choices": tuned, "tuned": self._tuned["device"]})
        for choices in self._known:
            within = complete(self.engine.space, choices)
            if within not in seen:
                seen.append(within)
                actions.append({"choices": within})
        return actions

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Does nothing: proposals of the engine are fast."""

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        """Returns the most promising of a few draws; its notes say how it was made."""
        if ask.expansion.operator == FALLBACK:
            made = self.engine.propose(ask, rng)
            return replace(made, notes={AUTHOR_NOTE: "engine", **made.notes})
        if ask.expansion.operator == "default":
            tuned = {"tuned": on} if (on := ask.expansion.action.get("tuned")) else {}
            return replace(self.engine.propose(ask, rng), notes={AUTHOR_NOTE: "engine", **tuned})
        if self._screener is None:
            choices, notes = self._draw(ask, rng)
            return replace(self._write(choices), notes=notes)
        draws = [self._draw(ask, rng) for _ in range(DRAWS)]
        chosen, made, prediction = self._screener.choose(ask, [choices for choices, _ in draws], self._write)
        screened = {"drawn": len(draws), **prediction.notes()}
        return replace(made, notes={**draws[chosen][1], "screener": screened})

    # ---------------------------------------------------------------- drawing

    def _has(self, part: str) -> bool:
        return part not in self.without

    def _draw(self, ask: ProposalRequest, rng: random.Random) -> tuple[Choices, dict[str, Any]]:
        memory, redrawn = self._failures(ask.view), 0
        while True:
            directed = self._directed(ask, rng)
            choices, retrieved = self._apply_operator(ask, rng) if directed is None else (directed[0], [])
            if memory is None or redrawn == REDRAWS or rng.random() >= memory.redraw_probability(choices):
                break
            redrawn += 1
        notes: dict[str, Any] = {AUTHOR_NOTE: "engine"} | ({MOVE: directed[1].name} if directed is not None else {})
        if retrieved:
            notes["retrieved"] = retrieved
        if redrawn:
            notes["redrawn"] = redrawn
        return choices, notes

    def _apply_operator(self, ask: ProposalRequest, rng: random.Random) -> tuple[Choices, list[str]]:
        """Applies the ask's operator once; also returns the keys whose value came from a similar kernel."""
        space, name = self.engine.space, ask.expansion.operator
        parents = [parent.choices for parent in ask.parents]
        drawn, retrieved = operator(name)(space, parents, rng), list[str]()
        if self._similar_values and name in _FRESH:
            before = complete(space, parents[0] if parents else {})
            for key in sorted(drawn):
                if (name == "random" or drawn[key] != before[key]) and rng.random() < RETRIEVED:
                    offers = [o for o in self._similar_values.get(choice_kind(key), ()) if o[0] in space[key].options]
                    if offers:
                        drawn[key] = rng.choices([v for v, _ in offers], [w for _, w in offers])[0]
                        retrieved.append(key)
        return complete(space, {**drawn, **ask.expansion.action.get("choices", {})}), retrieved

    def _directed(self, ask: ProposalRequest, rng: random.Random) -> tuple[Choices, Move] | None:
        """A change of one choice by a move that the policy names, or by one against what limits the parent."""
        if not ask.parents or ask.expansion.operator not in _VARIED:
            return None
        counted = ask.view.counted.get(ask.parents[0].program.key)
        kernel = counted.kernel if counted is not None else ""
        named = EVERY_MOVE.get(str(ask.expansion.action.get(MOVE, "")))
        if named is not None:
            return moved(self.engine.space, ask.parents[0].choices, [named], rng, kernel)
        moves = MOVES.get(counted.limit, ()) if counted is not None and self._has("counters") else ()
        if not moves or rng.random() >= DIRECTED:
            return None
        return moved(self.engine.space, ask.parents[0].choices, moves, rng, kernel)

    def _write(self, choices: Choices) -> Proposal:
        key = tuple(sorted(choices.items()))
        if key not in self._written:
            self._written[key] = self.engine.written(choices)
        return self._written[key]

    def _failures(self, view: SearchView) -> FailureMemory | None:
        if not self._has("failure_memory"):
            return None
        if self._memory is None or self._memory[0] is not view:
            self._memory = view, FailureMemory.of(view)
        return self._memory[1]


def choice_kind(key: str) -> str:
    """A choice's key without the name of its kernel: "map:softmax_2" -> "map", "BLOCK" -> "BLOCK".

    A split keeps the last word of its subject, which says what is split: "split:rows_sum" -> "split:sum".
    """
    kind, _, subject = key.partition(":")
    return f"split:{subject.rpartition('_')[2]}" if kind == "split" else kind


def similar_values(settings: Mapping[str, Any]) -> dict[str, list[tuple[Any, float]]]:
    """The values that similar kernels use, by kind of choice: (value, similarity)."""
    found: dict[str, list[tuple[Any, float]]] = {}
    similarity = settings.get("likeness", {})
    for program, choices in zip(settings.get("neighbours", ()), _choices_of(settings, "neighbours"), strict=True):
        for key, value in sorted(choices.items()):
            found.setdefault(choice_kind(key), []).append((value, max(float(similarity.get(program, 1.0)), 1e-3)))
    return found


def _choices_of(settings: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    by_program = settings.get("choices", {})
    return [current_choices(by_program.get(program, {})) for program in settings.get(name, ())]
