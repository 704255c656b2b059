"""How a run's winner compares with the kernel that the run began with."""

from __future__ import annotations

from typing import Any

import msgspec

from hipwright.api.start.reading import FORMS
from hipwright.archive import RunDetail, TrialDetail
from hipwright.records import Record
from hipwright.search.start import SETTING
from hipwright.search.view import START


class StartComparison(Record, frozen=True, kw_only=True):
    """The start of a run beside its winner.

    name, form: of the file. status: of its evaluation, "not judged" without one; message: why it was refused or not
    judged. score: as of the run's other programs; speedup: the start's score over the winner's, None where the two
    cannot be compared. answer: whether the start, or one with other knobs, is the run's answer. notes: of its
    conversion.
    """

    name: str
    form: str
    program: str = ""
    status: str = "not judged"
    message: str = ""
    score: float | None = None
    score_kind: str = "none"
    speedup: float | None = None
    answer: bool = False
    notes: tuple[str, ...] = msgspec.field(default_factory=tuple)

    @property
    def sentence(self) -> str:
        """The comparison in a sentence."""
        what = f"the start {self.name} ({FORMS.get(self.form, self.form)})"
        if self.status == "not judged":
            return f"{what} was not judged: {self.message or 'the search ended before'}"
        if self.status != "pass":
            return f"{what} was refused: {self.status}{f': {self.message}' if self.message else ''}"
        kind = f" ({self.score_kind.upper()})" if self.score_kind in ("estimate", "simulated") else ""
        time = "" if self.score is None else f", {self.score:.4g} µs{kind}"
        if self.answer and self.speedup in (None, 1.0):
            return f"{what} is verified{time}, and is the answer"
        if self.speedup is None:
            return f"{what} is verified{time}; no time compares the winner with it"
        again = ", the start with other knobs," if self.answer else ""
        return f"{what} is verified{time}; the winner{again} is {self.speedup:.2f} times as fast{kind}"


def start_comparison(detail: RunDetail) -> StartComparison | None:
    """The comparison of a run with a start; None for another run."""
    setting: dict[str, Any] = detail.run.settings.get(SETTING) or {}
    if not setting:
        return None
    trial = next((one for one in detail.trials if one.operator == START), None)
    known: dict[str, Any] = {"message": str(setting.get("why", ""))}
    if trial is not None and trial.status != "pending":
        known = {"status": trial.status, "message": trial.message, "score": trial.score, "score_kind": trial.score_kind}
    winner = next((one for one in detail.trials if one.number == detail.summary.best_number), None)
    return StartComparison(
        name=str(setting.get("name", "")),
        form=str(setting.get("form", "")),
        program=str(setting.get("program", "")),
        speedup=_speedup(trial, winner),
        answer=winner is not None and winner.notes.get("author") == START,
        notes=tuple(setting.get("notes", ())),
        **known,
    )


def _speedup(start: TrialDetail | None, winner: TrialDetail | None) -> float | None:
    if start is None or winner is None or start.status != "pass" or start.score_kind != winner.score_kind:
        return None
    return start.score / winner.score if start.score and winner.score else None
