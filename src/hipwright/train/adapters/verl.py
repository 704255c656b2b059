"""verl's reward function (0.9.1): compute_score(data_source, solution_str, ground_truth, extra_info) -> dict.

    reward.custom_reward_function.path=.../hipwright/train/adapters/verl.py
    reward.custom_reward_function.name=compute_score

verl has no reward for unscorable answers, and 0 would mark the program as bad. `VerlUnscorable` is raised instead:
verl's trainer (v1) then drops that answer's trajectory and marks its group as failed, and with
trainer.v1.sampler.sync_refill_failed_groups=True it draws another prompt. verl scores answers one by one, so each is a
group of its own, and the gate of the reward `hipwright` is open for every correct answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SOURCE = "hipwright"
ATTEMPTS = 3


class VerlUnscorable(RuntimeError):
    """An answer without a verdict: the machine, the task or a provider failed."""


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, float]:
    """The reward of one answer as `score`, and rates that verl logs. ground_truth: the reference's source.

    environment: as judging.settings.EnvironmentSettings, from reward_kwargs; None: of the variable
    HIPWRIGHT_ENVIRONMENT. Raises VerlUnscorable, and ValueError for rows of another data source.
    """
    from hipwright.train.judging.settings import shared_environment
    from hipwright.train.records import TrainingProblem

    if data_source != SOURCE:
        raise ValueError(f"data_source {data_source!r}: this reward function is for {SOURCE!r}")
    problem = TrainingProblem(name=str((extra_info or {}).get("task_name") or "task"), source=ground_truth)
    opened = shared_environment(environment)
    for _ in range(ATTEMPTS):
        scored = opened.score(problem, solution_str)
        if scored.reward is not None:
            break
    else:
        raise VerlUnscorable(f"{problem.name}: {scored.outcome.fault}: {scored.outcome.message}")
    found = scored.outcome
    fast = found.correct and (found.speedup or 0.0) > 1.0
    flags = {"compiled": found.compiled, "correct": found.correct, "fast_1": fast, "hack": found.hack}
    return {"score": scored.reward, **{name: float(value) for name, value in flags.items()}}
