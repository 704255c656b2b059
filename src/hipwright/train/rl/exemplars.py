"""What a prompt shows of earlier answers: two that differ in their score, and lessons from failures (docs/rl.md).

A contrast of a better and a worse program with their figures shows which change paid (CUDA-L1, Li et al. 2025, prompts
so); the lessons are those of the agents, counted over the whole run.
"""

from __future__ import annotations

import random
import re
from collections import OrderedDict
from typing import Any

from hipwright.agents.evidence import clean
from hipwright.agents.lessons import Lesson, guidance, kind_of_message
from hipwright.train.records import AnswerOutcome, ScoredOutcome, TrainingProblem

GAP = 0.1
"""Two rewards nearer than this are no contrast."""
MOST = 512
"""Problems whose answers are kept, the last ones that were visited."""
_WORD = re.compile(r"[A-Za-z_]\w+")


class Exemplars:
    """The best and the worst scored answer of each problem."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def add(self, problem: TrainingProblem, text: str, scored: ScoredOutcome) -> None:
        """Keep an answer if it is its problem's best or worst; one without a reward or a program teaches nothing."""
        if scored.reward is None or scored.outcome.status == "parse_error":
            return
        row = {"text": text, "reward": scored.reward, "figures": figures(scored.outcome)}
        entry = self._kept.setdefault(problem.name, {"words": sorted(words(problem.source)), "best": row, "worst": row})
        self._kept.move_to_end(problem.name)
        if row["reward"] > entry["best"]["reward"]:
            entry["best"] = row
        if row["reward"] < entry["worst"]["reward"]:
            entry["worst"] = row
        if len(self._kept) > MOST:
            self._kept.popitem(last=False)

    def contrast(self, problem: TrainingProblem) -> str:
        """Two scored answers to this problem, else to the one whose source shares most words; "": there is none."""
        useful = {name: one for name, one in self._kept.items() if _gap(one) >= GAP}
        if not useful:
            return ""
        name = problem.name
        if name not in useful:
            own = words(problem.source)
            name = max(useful, key=lambda other: (likeness(own, set(useful[other]["words"])), other))
        entry = useful[name]
        whose = "this reference" if name == problem.name else "a similar reference"
        return (
            f"## Two earlier answers to {whose}\nThe worse one ({entry['worst']['figures']}):\n\n"
            f"{entry['worst']['text'].strip()}\n\nThe better one ({entry['best']['figures']}):\n\n"
            f"{entry['best']['text'].strip()}\n\nLearn from the difference."
        )

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"kept": [[name, entry] for name, entry in self._kept.items()]}

    def load(self, state: dict[str, Any]) -> None:
        """Put `state()` back."""
        self._kept = OrderedDict((name, entry) for name, entry in state["kept"])


class FailureCounts:
    """Failures by kind, counted over the run."""

    def __init__(self) -> None:
        self._judged = 0
        self._kinds: dict[str, dict[str, Any]] = {}

    def add(self, outcome: AnswerOutcome) -> None:
        """Count an outcome; faults that are not the candidate's teach nothing."""
        if not outcome.scorable:
            return
        self._judged += 1
        if outcome.status != "pass":
            text = f"{outcome.status}: {outcome.message}"
            entry = self._kinds.setdefault(kind_of_message(text), {"count": 0, "example": ""})
            entry["count"] += 1
            entry["example"] = clean(text, 200)

    def text(self, most: int) -> str:
        """The most frequent kinds first, as a section of a prompt; "" where nothing failed yet."""
        ordered = sorted(self._kinds.items(), key=lambda item: (-item[1]["count"], item[0]))[:most]
        told = [
            Lesson(kind=kind, guidance=guidance(kind), count=one["count"], of=self._judged, example=one["example"]).text
            for kind, one in ordered
        ]
        return "## What went wrong in earlier programs\n" + "\n".join(f"- {one}" for one in told) if told else ""

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"judged": self._judged, "kinds": {kind: dict(one) for kind, one in self._kinds.items()}}

    def load(self, state: dict[str, Any]) -> None:
        """Put `state()` back."""
        self._judged, self._kinds = state["judged"], {kind: dict(one) for kind, one in state["kinds"].items()}


class ExemplarSettings:
    """What is put into prompts. share: of prompts with a contrast; most: lessons in each prompt."""

    def __init__(self, share: float, most: int) -> None:
        self.share, self.most = share, most
        self.exemplars, self.lessons = Exemplars(), FailureCounts()

    def text(self, problem: TrainingProblem, rng: random.Random) -> str:
        """The sections for one prompt. Draws from `rng` once, whatever it gives."""
        shown = rng.random() < self.share
        parts = [self.exemplars.contrast(problem) if shown else "", self.lessons.text(self.most) if self.most else ""]
        return "\n\n".join(part for part in parts if part)

    def add(self, problem: TrainingProblem, text: str, scored: ScoredOutcome) -> None:
        """Learn of one answer; what no prompt will show is not kept."""
        if self.share:
            self.exemplars.add(problem, text, scored)
        if self.most:
            self.lessons.add(scored.outcome)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"exemplars": self.exemplars.state(), "lessons": self.lessons.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Put `state()` back."""
        self.exemplars.load(state["exemplars"])
        self.lessons.load(state["lessons"])


def figures(outcome: AnswerOutcome) -> str:
    """An outcome in a few words: why it failed, or how fast it is and what that rests on."""
    if not outcome.correct:
        return clean(f"{outcome.status}: {outcome.message}", 200)
    if outcome.speedup is None:
        return "correct, not timed"
    bounds = f", {outcome.low:.2f} to {outcome.high:.2f}" if outcome.low and outcome.high else ""
    how = "measured" if outcome.clock == "device" else "by static estimate"
    return f"correct, {outcome.speedup:.2f}x against {outcome.baseline or 'the baseline'} {how}{bounds}"


def words(source: str) -> set[str]:
    """The names in a source."""
    return set(_WORD.findall(source))


def likeness(one: set[str], other: set[str]) -> float:
    """Jaccard: shared names over all names, 0 to 1."""
    return len(one & other) / max(len(one | other), 1)


def _gap(entry: dict[str, Any]) -> float:
    return float(entry["best"]["reward"] - entry["worst"]["reward"])
