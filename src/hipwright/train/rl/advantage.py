"""How much better an answer was than its group's others: the weight of its tokens in the policy gradient (docs/rl.md).

A group is the answers to one prompt at one turn of the conversation. Leave-one-out takes from each value the mean of
the others, which leaves the policy gradient unbiased (REINFORCE with a leave-one-out baseline, Kool et al. 2019; by
turns, as here, it is the TRLOO of the Dr. Kernel paper of 2026, on GPU kernels in several turns). Group-relative
advantages take the mean of all, and may divide by the standard deviation (DeepSeekMath's GRPO), which favours problems
that are nearly always or nearly never solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

from hipwright.train.rl.settings import Baseline

EPSILON = 1e-6
"""Values nearer than this are equal: such a group teaches nothing."""


def advantages(values: Sequence[float | None], baseline: Baseline) -> list[float | None]:
    """Of one group, in order. A None is left out of the baseline and stays None, as does a value without company."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return [None] * len(values)
    mean = fmean(known)
    if baseline == "loo":
        scale = len(known) / (len(known) - 1)  # value - mean of the others = n/(n-1) * (value - mean of all)
    elif baseline == "grpo":
        scale = 1.0
    else:
        scale = 1 / (pstdev(known) + EPSILON)
    return [None if value is None else (value - mean) * scale for value in values]


def flat(values: Sequence[float | None]) -> bool:
    """Whether a group has two values or more and no variance."""
    known = [value for value in values if value is not None]
    return len(known) > 1 and max(known) - min(known) < EPSILON


def returns(rewards: Sequence[float | None], discount: float) -> list[float | None]:
    """What each turn of one conversation is worth: its own reward, and a share of what the conversation won after it.

        R_t = r_t + discount^(T - t) * max(r_T - r_t, 0)

    r_t is the reward of turn t, T the last turn with one. So an answer that led to its repair is worth more than one
    that did not, and less than one that was right at once; a later answer that is worse takes nothing away. (Kevin,
    Baronio et al. 2025, sums the discounted scores of all later turns; here the gain alone counts, so that no value
    exceeds the best reward and a conversation that goes on after a right answer is not paid for it twice.)
    """
    last = max((turn for turn, reward in enumerate(rewards) if reward is not None), default=0)
    final = rewards[last] if rewards else None
    return [
        None if reward is None else reward + discount ** max(last - turn, 0) * max((final or 0.0) - reward, 0.0)
        for turn, reward in enumerate(rewards)
    ]
