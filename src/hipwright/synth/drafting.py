"""The draft of each index: composed or mutated by the engine, or written by a language model."""

from __future__ import annotations

import random

from msgspec.structs import replace

from hipwright.errors import BadInput
from hipwright.records import content_key
from hipwright.sandbox import Zygote
from hipwright.synth import constrain, mutate
from hipwright.synth.check import task_text_key
from hipwright.synth.records import Draft, DroppedDraft, Mode
from hipwright.synth.request import DraftOutcome, SynthesisRequest

MAX_CHANGES = 2  # of one mutated task


class Drafter:
    """Draws the draft of an index; its own drafts depend on the request and the index alone."""

    def __init__(self, request: SynthesisRequest) -> None:
        self.request = request
        constrained = "constraint" in request.modes and request.constraint
        empty = constrain.TaskConstraints()
        self._constraints, self._unknown = request.parsed_constraint() if constrained else (empty, ())
        self._presets = [constrain.parse_constraints(text)[0] for text in constrain.PRESETS]

    def mode(self, index: int) -> Mode:
        """The mode of an index: the modes alternate."""
        return self.request.modes[index % len(self.request.modes)]

    def constraints(self, index: int) -> constrain.TaskConstraints | None:
        """What the finished task of an index must meet; None outside the constraint mode."""
        if self.mode(index) != "constraint":
            return None
        return self._constraints if self.request.constraint else self._presets[self._preset(index)]

    def draw(self, index: int, zygote: Zygote) -> DraftOutcome:
        """The draft of an index, by the engine or by the request's writer. BadInput where nothing can be composed."""
        rng, mode = self._rng(index), self.mode(index)
        by_writer = rng.random() < self.request.llm_share or (mode == "constraint" and bool(self._unknown))
        if self.request.writer is not None and by_writer:
            return self._written(index, mode, zygote)
        if mode == "mutation":
            return self._mutated(index, rng)
        try:
            return self._composed(index, rng, mode, self.constraints(index)), ()
        except BadInput as error:
            if self.request.constraint:  # the user's own constraint cannot be met, at no index
                raise
            draft = Draft(name=f"draft_{index}", source="", mode=mode, seed=self.request.seed)
            return None, (DroppedDraft(draft=draft, stage="compose", why=error.message),)

    def _rng(self, *parts: object) -> random.Random:
        return random.Random(content_key("synth", str(self.request.seed), *map(str, parts)))

    def _preset(self, index: int) -> int:
        return (index // len(self.request.modes)) % len(self._presets)

    def _composed(
        self, index: int, rng: random.Random, mode: Mode, constraints: constrain.TaskConstraints | None
    ) -> Draft:
        from hipwright.synth.compose import compose, lead_operator

        lead = "" if constraints is not None else lead_operator(index // len(self.request.modes))
        draft = compose(rng, constraints=constraints, lead=lead)
        detail = self._constraint_text(index) if mode == "constraint" else draft.detail
        return replace(draft, mode=mode, detail=detail)

    def _constraint_text(self, index: int) -> str:
        if self.mode(index) != "constraint":
            return ""
        return self.request.constraint or constrain.PRESETS[self._preset(index)]

    def _mutated(self, index: int, rng: random.Random) -> DraftOutcome:
        """One or two changes to a parent; every kind of change is equally likely."""
        name, source = self._parent(index, rng)
        text, kind = source, "same"
        details: list[str] = []
        for _ in range(rng.randint(1, MAX_CHANGES)):
            changes = mutate.mutations(text, rng)
            if changes:
                kind = rng.choice(sorted({change.kind for change in changes}))
                change = rng.choice([one for one in changes if one.kind == kind])
                text, details = change.source, [*details, change.detail]
        draft = Draft(
            name=f"{name}_{kind}_{content_key(text)[:4]}",
            source=text,
            mode="mutation",
            seed=self.request.seed,
            parents=(task_text_key(source),),
            detail=f"{name}: {'; '.join(details)}",
        )
        if not details:
            return None, (DroppedDraft(draft=draft, stage="mutation", why="nothing to change"),)
        return draft, ()

    def _parent(self, index: int, rng: random.Random) -> tuple[str, str]:
        """(name, source) of a task to mutate."""
        if self.request.parents:
            name = rng.choice(sorted(self.request.parents))
            return name, self.request.parents[name]
        composed = self._composed(index, self._rng("parent", index), "composition", None)
        return composed.name, composed.source

    def _written(self, index: int, mode: Mode, zygote: Zygote) -> DraftOutcome:
        assert self.request.writer is not None
        parents = dict([self._parent(index, self._rng("llm parent", index))]) if mode == "mutation" else {}
        draft, refused = self.request.writer(index, mode, parents, self._constraint_text(index), zygote)
        keys = tuple(task_text_key(source) for source in parents.values())
        return replace(draft, seed=self.request.seed, parents=keys) if draft is not None else None, refused
