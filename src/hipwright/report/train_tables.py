"""The training report's figures in plain JSON types, and what each figure of a log means."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hipwright.report.train_data import rates, read, seconds_of


def figures(folder: Path) -> dict[str, Any]:
    """The report's figures in plain JSON types, for --json."""
    data = read(folder)
    trainings = [
        {
            "name": one.name,
            "arm": one.arm,
            "seed": one.seed,
            "steps": one.steps,
            "minutes": one.minutes,
            "last": {stage: {name: curve[-1][1] for name, curve in all_.items()} for stage, all_ in one.curves.items()},
            "rates": rates(one) if "rl" in one.curves else None,
            "seconds": seconds_of(one),
        }
        for one in data.trainings
    ]
    kept = {name: data.evaluation.get(name) or [] for name in ("arms", "levels", "comparisons", "regret")}
    return {"device": data.device, "clock": data.clock, "unfinished": data.unfinished, "trainings": trainings, **kept}


# ---------------------------------------------------------------- meanings

MEANINGS = {
    "loss": "what the update minimises; in SFT nats a token of the answer, in DPO log 2 before the first update",
    "reward": "mean reward of the scorable answers; by TRL of each conversation's last answer",
    "compiled": "share of the scorable answers whose program compiles",
    "correct": "share of the scorable answers that the verifier passed",
    "correct_first": "the same of the first answers alone",
    "correct_last": "the same of the last answers, after repairs",
    "turns": "answers of a conversation, mean",
    "speedup": "mean speedup of the correct answers that were timed or estimated",
    "fast_1": "share of the scorable answers that are correct and faster than the baseline",
    "hack": "share of the scorable answers that are proven hacks",
    "infra": "share of all answers without a reward, since the machine, the task or a provider was at fault",
    "infrastructure": "the same, by TRL",
    "zero_variance": "share of the groups whose rewards are all equal, which teach nothing",
    "groups": "groups with two rewards or more",
    "entropy": "entropy of the next token, nats; a fall to 0 is a collapse to one answer",
    "clipped": "share of the tokens whose ratio to the sampling policy was clipped",
    "drift": "estimated KL from the policy that sampled; near 0 on an on-policy step",
    "kl": "estimated KL from the policy at the start",
    "tokens": "tokens of an answer, mean",
    "ended": "share of the answers that ended by themselves; the others were cut off",
    "answers": "answers of the step",
    "scored": "answers of the step with a reward",
    "grad_norm": "norm of the gradient before it is clipped",
    "learning_rate": "rate of the update",
    "kept": "problems whose best answer is known, in rejection fine-tuning",
    "imitated": "answers that the step imitates, in rejection fine-tuning",
    "new_best": "problems whose best answer is a new one",
    "kept_step": "the step whose weights are the best so far",
    "accuracy": "share of the preference pairs in order",
    "margin": "mean difference that DPO multiplies by beta",
    "rewards_an_hour": "scored answers an hour, at this step's speed",
    "tokens_per_second": "tokens that were trained on, a second",
    "pass": "number of the pass over the data, from 1",
    "minutes": "wall time so far, over all pieces",
}
"""What each figure of a log means, by name; names with a slash, such as `completions/mean_length`, are TRL's own."""

_PARTS = "seconds of the step by phase: generate, submit, wait (verdicts), wait_gpu (a timing), train, step (all)"


def meaning(name: str) -> str:
    """The sentence of a figure; "" for one without."""
    return _PARTS if name.startswith("seconds_") else MEANINGS.get(name, "")


def explained(names: Iterable[str]) -> list[tuple[str, str]]:
    """(figure, sentence) of those that have one, in the order of MEANINGS."""
    known = set(names)
    return [(name, text) for name, text in MEANINGS.items() if name in known]
