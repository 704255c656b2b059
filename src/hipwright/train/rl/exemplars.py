"""The context of a prompt: two earlier answers of different reward, and lessons from failures (docs/rl.md).

A better and a worse program with their figures show which change was an improvement, as in CUDA-L1 (Li et al. 2025).
The lessons are those of the agents, counted over the whole run.
"""

from __future__ import annotations

import random
import re
from collections import OrderedDict
from typing import Any

from hipwright.agents.evidence import clean
from hipwright.agents.lessons import Lesson, guidance, kind_of_message
from hipwright.train.records import AnswerOutcome, ScoredOutcome, TrainingProblem

MIN_DIFFERENCE = 0.1
"""Least difference of the rewards of two answers that are shown together."""
MAX_PROBLEMS = 512
"""Problems whose answers are kept, the most recently visited ones."""
_WORD = re.compile(r"[A-Za-z_]\w+")


class Exemplars:
    """The best and the worst scored answer of each problem."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def add(self, problem: TrainingProblem, text: str, scored: ScoredOutcome) -> None:
        """Keeps an answer that is its problem's best or worst; answers without a reward or a program are ignored."""
        if scored.reward is None or scored.outcome.status == "parse_error":
            return
        row = {"text": text, "reward": scored.reward, "figures": describe_outcome(scored.outcome)}
        entry = self._kept.setdefault(
            problem.name, {"words": sorted(identifiers(problem.source)), "best": row, "worst": row}
        )
        self._kept.move_to_end(problem.name)
        if row["reward"] > entry["best"]["reward"]:
            entry["best"] = row
        if row["reward"] < entry["worst"]["reward"]:
            entry["worst"] = row
        if len(self._kept) > MAX_PROBLEMS:
            self._kept.popitem(last=False)

    def contrast(self, problem: TrainingProblem) -> str:
        """A section with two scored answers to this problem, else to the one with the most similar source; "" for
        none."""
        useful = {name: one for name, one in self._kept.items() if _difference(one) >= MIN_DIFFERENCE}
        if not useful:
            return ""
        name = problem.name
        if name not in useful:
            own = identifiers(problem.source)
            name = max(useful, key=lambda other: (jaccard(own, set(useful[other]["words"])), other))
        entry = useful[name]
        whose = "this reference" if name == problem.name else "a similar reference"
        return (
            f"## Two earlier answers to {whose}\nThe worse one ({entry['worst']['figures']}):\n\n"
            f"{entry['worst']['text'].strip()}\n\nThe better one ({entry['best']['figures']}):\n\n"
            f"{entry['best']['text'].strip()}\n\nLearn from the difference."
        )

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"kept": [[name, entry] for name, entry in self._kept.items()]}

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`."""
        self._kept = OrderedDict((name, entry) for name, entry in state["kept"])


class FailureCounts:
    """Counts failures by kind over the run."""

    def __init__(self) -> None:
        self._judged = 0
        self._kinds: dict[str, dict[str, Any]] = {}

    def add(self, outcome: AnswerOutcome) -> None:
        """Counts an outcome; faults that are not the candidate's are ignored."""
        if not outcome.scorable:
            return
        self._judged += 1
        if outcome.status != "pass":
            text = f"{outcome.status}: {outcome.message}"
            entry = self._kinds.setdefault(kind_of_message(text), {"count": 0, "example": ""})
            entry["count"] += 1
            entry["example"] = clean(text, 200)

    def text(self, most: int) -> str:
        """A section of a prompt with the `most` most frequent kinds of failures; "" where nothing failed yet."""
        ordered = sorted(self._kinds.items(), key=lambda item: (-item[1]["count"], item[0]))[:most]
        lines = [
            Lesson(kind=kind, guidance=guidance(kind), count=one["count"], of=self._judged, example=one["example"]).text
            for kind, one in ordered
        ]
        return "## What went wrong in earlier programs\n" + "\n".join(f"- {one}" for one in lines) if lines else ""

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"judged": self._judged, "kinds": {kind: dict(one) for kind, one in self._kinds.items()}}

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`."""
        self._judged, self._kinds = state["judged"], {kind: dict(one) for kind, one in state["kinds"].items()}


class RolloutContext:
    """Writes the context of prompts. share: of prompts with two answers; most: lessons in each prompt."""

    def __init__(self, share: float, most: int) -> None:
        self.share, self.most = share, most
        self.exemplars, self.lessons = Exemplars(), FailureCounts()

    def text(self, problem: TrainingProblem, rng: random.Random) -> str:
        """The sections for one prompt. Draws from `rng` exactly once."""
        shown = rng.random() < self.share
        parts = [self.exemplars.contrast(problem) if shown else "", self.lessons.text(self.most) if self.most else ""]
        return "\n\n".join(part for part in parts if part)

    def add(self, problem: TrainingProblem, text: str, scored: ScoredOutcome) -> None:
        """Records one answer, as far as prompts will show it."""
        if self.share:
            self.exemplars.add(problem, text, scored)
        if self.most:
            self.lessons.add(scored.outcome)

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"exemplars": self.exemplars.state(), "lessons": self.lessons.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`."""
        self.exemplars.load(state["exemplars"])
        self.lessons.load(state["lessons"])


def describe_outcome(outcome: AnswerOutcome) -> str:
    """A short description of an outcome: why it failed, or its speedup, baseline and clock."""
    if not outcome.correct:
        return clean(f"{outcome.status}: {outcome.message}", 200)
    if outcome.speedup is None:
        return "correct, not timed"
    bounds = f", {outcome.low:.2f} to {outcome.high:.2f}" if outcome.low and outcome.high else ""
    how = "measured" if outcome.clock == "device" else "by static estimate"
    return f"correct, {outcome.speedup:.2f}x against {outcome.baseline or 'the baseline'} {how}{bounds}"


def identifiers(source: str) -> set[str]:
    """The identifiers of two letters or more in a source."""
    return set(_WORD.findall(source))


def jaccard(one: set[str], other: set[str]) -> float:
    """The Jaccard similarity of two sets, 0 to 1."""
    return len(one & other) / max(len(one | other), 1)


def _difference(entry: dict[str, Any]) -> float:
    return float(entry["best"]["reward"] - entry["worst"]["reward"])
