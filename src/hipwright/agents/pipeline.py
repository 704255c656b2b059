"""The pipeline: one proposal source over two authors. The operator of an ask decides between engine and models.

When the models' budget is spent, or a model gives no answer, the engine proposes in their place and notes it; where the
run's settings say so, a provider's error passes through and pauses the run. Programs of models are screened before they
cost an evaluation.
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
from hipwright.errors import InfrastructureError, OutOfBudget, ProviderError
from hipwright.records import Task
from hipwright.search import NoProposal, Proposal, ProposalRequest, ProposalSource
from hipwright.search.policies.llm_share import MODEL_OPERATORS

if TYPE_CHECKING:
    from hipwright.agents.base import Tools

KNOWN, NEIGHBOURS = 2, 4
"""The numbers of programs of the same task, and of similar tasks, that a run takes from the archive."""

AWAY, GO_ON = "away", "engine"
"""The setting of what a run does without a model's answer, and its value where the engine goes on."""

Draft = Proposal | Exception


def goes_on(settings: Mapping[str, Any]) -> bool:
    """Whether the engine goes on in a run of these settings where a model gives no answer."""
    return bool(settings.get(AWAY) == GO_ON)


def snapshot(
    archive: Archive,
    task: Task,
    targets: Sequence[str],
    k: int = NEIGHBOURS,
    *,
    without: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Takes from the archive what a new run may use; from then on the run depends on its own record only.

    Returns {"known": keys of the task's best programs, "neighbours": keys of at most k similar verified programs,
    "choices" and "likeness" (similarity): by program key}.
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
    """The screener that asks a model, if the command line names one (`--llm screener=...`), else None."""
    return LlmScreener(tools) if LlmScreener.name in tools.llm_roles else None


class Pipeline:
    """A ProposalSource. llm: the models' source, None without models; settings: the run setting "agents"."""

    def __init__(
        self,
        engine: EngineAuthor,
        llm: ProposalSource | None,
        settings: Mapping[str, Any],
        screener: LlmScreener | None = None,
    ) -> None:
        self.engine = engine
        self.llm = llm
        self._screens = "screener" not in settings.get("without", ())
        self._goes_on = goes_on(settings)
        self._screener = screener
        self._drafts: dict[int, Draft] = {}

    @property
    def falls_back(self) -> bool:
        """Whether the engine gives up parts of a refused first answer."""
        return self.engine.falls_back

    def initial(self) -> Sequence[dict[str, Any]]:
        """Returns the engine's actions: its program is the first verified parent of both authors."""
        return self.engine.initial()

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Has the models write their share of the round, and screens it."""
        for_models = [ask for ask in asks if ask.expansion.operator in MODEL_OPERATORS]
        self._drafts = {}
        if not for_models or self.llm is None:
            return
        try:
            self.llm.prepare(for_models)
        except OutOfBudget as error:
            self._drafts = {ask.expansion.number: error for ask in for_models}
            return
        except ProviderError:  # each ask has its own outcome
            if not self._goes_on:
                raise
        self._drafts = {ask.expansion.number: self._draft(ask) for ask in for_models}
        if self._screens:
            self._screen(for_models, len(asks))

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        """Returns the engine's program, or what the models wrote in `prepare`."""
        if ask.expansion.operator not in MODEL_OPERATORS:
            return self.engine.propose(ask, rng)
        if self.llm is None:
            return self._by_engine_instead(ask, rng, "no model is configured")
        draft = self._drafts.get(ask.expansion.number) or self._draft(ask)
        if isinstance(draft, OutOfBudget | ProviderError):
            return self._by_engine_instead(ask, rng, draft.message)
        if isinstance(draft, Exception):
            raise draft
        return draft

    # ---------------------------------------------------------------- the models' share

    def _draft(self, ask: ProposalRequest) -> Draft:
        """The models' proposal or its error. Raises InfrastructureError: the run pauses."""
        assert self.llm is not None
        try:
            made = self.llm.propose(ask, random.Random(f"{ask.expansion.seed}/model/{ask.expansion.number}"))
        except OutOfBudget as error:
            return error
        except InfrastructureError as error:
            if isinstance(error, ProviderError) and self._goes_on:
                return error
            raise
        except Exception as error:  # raised again by `propose`
            return error
        return replace(made, notes={AUTHOR_NOTE: "llm", **made.notes})

    def _screen(self, asks: Sequence[ProposalRequest], round_size: int) -> None:
        """Adds predictions to the notes; the poorest proposals become NoProposal."""
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
            check = self.engine.static_check
            return {number: prediction_from_rates(draft, view, check(draft.program)) for number, draft in fresh.items()}
        try:
            return self._screener.judge(fresh, view.seed)
        except ProviderError:
            if self._goes_on:
                return {}  # not screened
            raise

    def _by_engine_instead(self, ask: ProposalRequest, rng: random.Random, why: str) -> Proposal:
        """The engine's proposal in place of the models': a mutation, or the defaults while there is no trial."""
        instead = ask.expansion.operator
        operator = "mutate" if ask.view.trials else "default"
        made = self.engine.propose(
            ProposalRequest(replace(ask.expansion, operator=operator), ask.parents, ask.view),
            rng,
        )
        return replace(made, notes={**made.notes, "instead_of": instead, "why": why[:200]})
