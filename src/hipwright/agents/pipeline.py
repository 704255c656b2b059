"""The pipeline: one source of proposals out of two minds. Each ask goes to the engine or to the models by its operator.

When the models' budget is spent the engine takes over what they were asked for, and says so in the notes. A provider
that fails pauses the run: its error passes through. What models wrote is screened before it costs an evaluation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hipwright.agents.engine_author import EngineAuthor
from hipwright.agents.screening.screener import LlmScreener, Prediction, prediction_from_rates, screened_out
from hipwright.archive import Archive
from hipwright.archive.log import AUTHOR_NOTE
from hipwright.errors import InfrastructureError, OutOfBudget
from hipwright.records import Task
from hipwright.search import NoProposal, Proposal, ProposalRequest, ProposalSource
from hipwright.search.policies.llm_share import MODEL_OPERATORS

if TYPE_CHECKING:
    from hipwright.agents.base import Tools

KNOWN, NEIGHBOURS = 2, 4
"""Programs of the same task and of similar tasks that a run starts with."""

Draft = Proposal | Exception


def snapshot(
    archive: Archive,
    task: Task,
    targets: Sequence[str],
    k: int = NEIGHBOURS,
    *,
    without: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """What the archive offers a run as it begins, drawn once: the run depends on its own record from then on.

    known: keys of the best programs of the task; neighbours: of at most k similar verified kernels; choices and
    likeness: by program key.
    """
    from hipwright.archive.similar import known_for, similar

    known = [] if "archive_parents" in without else known_for(archive, task.key, targets, KNOWN)
    near = []
    if "retrieval" not in without:
        near = similar(archive, task.source, targets=targets, k=k, exclude_task=task.key)
    return {
        "known": [one.program for one in known],
        "neighbours": [one.program for one in near],
        "choices": {one.program: dict(one.choices) for one in (*near, *known)},
        "likeness": {one.program: one.similarity for one in near},
    }


def llm_screener(tools: Tools) -> LlmScreener | None:
    """The screener's model mind, where the command line named a model for it (`--llm screener=...`)."""
    return LlmScreener(tools) if LlmScreener.name in tools.llm_roles else None


class Pipeline:
    """A ProposalSource. writer: the models' source, None without any; settings: the run's setting "agents"."""

    def __init__(
        self,
        engine: EngineAuthor,
        writer: ProposalSource | None,
        settings: Mapping[str, Any],
        screener: LlmScreener | None = None,
    ) -> None:
        self.engine = engine
        self.writer = writer
        self._screens = "screener" not in settings.get("without", ())
        self._screener = screener
        self._drafts: dict[int, Draft] = {}

    def initial(self) -> Sequence[dict[str, Any]]:
        """The engine's: its verified program is the first parent, whoever goes on."""
        return self.engine.initial()

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Have the models write their part of the round, and screen it."""
        theirs = [ask for ask in asks if ask.expansion.operator in MODEL_OPERATORS]
        self._drafts = {}
        if not theirs or self.writer is None:
            return
        try:
            self.writer.prepare(theirs)
        except OutOfBudget as error:
            self._drafts = {ask.expansion.number: error for ask in theirs}
            return
        self._drafts = {ask.expansion.number: self._draft(ask) for ask in theirs}
        if self._screens:
            self._screen(theirs, len(asks))

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        """The engine's program, or the models' as `prepare` left it."""
        if ask.expansion.operator not in MODEL_OPERATORS:
            return self.engine.propose(ask, rng)
        if self.writer is None:
            return self._taken_over(ask, rng, "no model is configured")
        draft = self._drafts.get(ask.expansion.number) or self._draft(ask)
        if isinstance(draft, OutOfBudget):
            return self._taken_over(ask, rng, draft.message)
        if isinstance(draft, Exception):
            raise draft
        return draft

    # ---------------------------------------------------------------- the models' part

    def _draft(self, ask: ProposalRequest) -> Draft:
        """What the models made of one ask. An InfrastructureError (a provider's too) is raised: the run pauses."""
        assert self.writer is not None
        try:
            made = self.writer.propose(ask, random.Random(f"{ask.expansion.seed}/model/{ask.expansion.number}"))
        except OutOfBudget as error:
            return error
        except InfrastructureError:
            raise
        except Exception as error:  # a declined or failed proposal, raised again when its turn comes
            return error
        return replace(made, notes={AUTHOR_NOTE: "llm", **made.notes})

    def _screen(self, asks: Sequence[ProposalRequest], round_size: int) -> None:
        """Predictions into the notes; the poorest proposals become Declined."""
        known = {trial.proposed.program for trial in asks[0].view.trials}
        written = {n: d for n, d in self._drafts.items() if isinstance(d, Proposal)}
        fresh = {number: draft for number, draft in written.items() if draft.program.key not in known}
        predictions = self._predictions(asks, fresh)
        for number, prediction in predictions.items():
            self._drafts[number] = replace(
                written[number], notes={**written[number].notes, "screener": prediction.notes()}
            )
        for number in screened_out(predictions, len(fresh), round_size):
            draft, prediction = self._drafts[number], predictions[number]
            assert isinstance(draft, Proposal)
            why = f"screened out: compiles {prediction.compiles or 0:.0%}, passes {prediction.passes or 0:.0%}"
            notes = {**draft.notes, "screened_out": draft.program.key}
            self._drafts[number] = NoProposal(f"{why}; {prediction.why}".rstrip("; "), notes)

    def _predictions(self, asks: Sequence[ProposalRequest], fresh: Mapping[int, Proposal]) -> dict[int, Prediction]:
        view = asks[0].view
        if self._screener is None:
            check = self.engine.problem
            return {number: prediction_from_rates(draft, view, check(draft.program)) for number, draft in fresh.items()}
        return self._screener.judge(fresh, view.seed)

    def _taken_over(self, ask: ProposalRequest, rng: random.Random, why: str) -> Proposal:
        """The engine's proposal in the models' place: a mutation, of its own program where the parents are theirs."""
        instead = ask.expansion.operator
        operator = "mutate" if ask.view.trials else "default"
        made = self.engine.propose(
            ProposalRequest(replace(ask.expansion, operator=operator), ask.parents, ask.view),
            rng,
        )
        return replace(made, notes={**made.notes, "instead_of": instead, "why": why[:200]})
