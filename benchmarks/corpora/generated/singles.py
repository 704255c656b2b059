"""Generated modules of one operator each, at the shapes and options that its callers may choose.

Everything is drawn from the task's number, so that a number is the same task on every machine; no task is chosen or
tuned. Small and real sizes are of the same operator with the same options.
"""

from __future__ import annotations

import random

from benchmarks.corpora.corpus import CorpusTask
from benchmarks.corpora.generated.numbered import Numbered
from benchmarks.corpora.generated.single_drafts import Draft
from benchmarks.corpora.generated.single_operators import KINDS

COUNT = 500
"""Tasks of the corpus."""
DTYPES = ("float32", "float32", "float32", "bfloat16", "float16")
"""Data types, float32 three times as often as each of the others."""


def written(number: int, real: bool) -> CorpusTask:
    """The task of a number: the first of its draws that is affordable at small and at real sizes."""
    of_number = random.Random(f"single {number}")
    kind, dtype = list(KINDS)[number % len(KINDS)], of_number.choice(DTYPES)
    for attempt in range(1000):
        drafts = {size: Draft(random.Random(f"single {number} {attempt}"), size, dtype) for size in (False, True)}
        for draft in drafts.values():
            KINDS[kind](draft)
        if all(draft.affordable for draft in drafts.values()):
            chosen = drafts[real]
            return CorpusTask(f"single_{number:04d}_{kind}_{dtype}", f"{kind}_{dtype}", _text(kind, chosen))
    raise AssertionError(f"no affordable module of number {number}")


def _text(kind: str, draft: Draft) -> str:
    cast = [] if draft.dtype == "float32" or not draft.made else [f"self.to(torch.{draft.dtype})"]
    return draft.text(f"A generated module of one operator: {kind}, {draft.dtype}", [*draft.made, *cast] or ["pass"])


class Singles(Numbered):
    """Generated modules of one operator, a family for each kind of operator and data type."""

    count = COUNT
    written = staticmethod(written)
