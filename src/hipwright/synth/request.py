"""The request of a synthesis run, and the interface of a language model that writes drafts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from hipwright.errors import BadInput
from hipwright.records import content_key
from hipwright.sandbox import Zygote
from hipwright.synth.constrain import TaskConstraints, parse_constraints
from hipwright.synth.records import Draft, DroppedDraft, Mode

DraftOutcome = tuple[Draft | None, tuple[DroppedDraft, ...]]
"""The draft of an index, or None where there is none, and the drafts that were refused before it."""


class DraftWriter(Protocol):
    """A language model as the author of drafts. Raises OutOfBudget and ProviderError."""

    def __call__(
        self, index: int, mode: Mode, parents: Mapping[str, str], constraint: str, zygote: Zygote
    ) -> DraftOutcome:
        """The draft of one index. parents: {name: source}; constraint: as text, "" for none."""
        ...


@dataclass(frozen=True)
class SynthesisRequest:
    """What to synthesise. parents: {name: source} for the mutation mode; empty: composed tasks are mutated.

    constraint: text for the constraint mode; "" cycles through `constrain.PRESETS`. llm_share: the share of the drafts
    that `writer` writes; it writes all drafts of a constraint that the vocabulary covers only in part.
    """

    count: int
    modes: tuple[Mode, ...] = ("composition",)
    seed: int = 0
    parents: Mapping[str, str] = field(default_factory=dict)
    constraint: str = ""
    writer: DraftWriter | None = None
    llm_share: float = 0.5

    def settings(self) -> dict[str, object]:
        """What decides the tasks, for the manifest. The count is left out: a resumed run may raise it."""
        parents = content_key("parents", *(text for pair in sorted(self.parents.items()) for text in pair))
        share = self.llm_share if self.writer is not None else 0.0
        return {
            "seed": self.seed,
            "modes": list(self.modes),
            "parents": parents if self.parents else "",
            "constraint": self.constraint,
            "llm_share": share,
        }

    def parsed_constraint(self) -> tuple[TaskConstraints, tuple[str, ...]]:
        """(the constraint, the words that were not understood). BadInput for such words when there is no writer."""
        found, unknown = parse_constraints(self.constraint)
        if unknown and self.writer is None:
            raise BadInput(
                f"the constraint has words that the engine does not know: {', '.join(unknown)}",
                hint="docs/synth.md has the vocabulary; with --llm a model reads it",
            )
        return found, unknown
