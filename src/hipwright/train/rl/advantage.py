"""Advantages of a group of answers: the weights of their tokens in the policy gradient (docs/rl.md).

A group is the answers to one prompt at one turn of the conversation. Leave-one-out subtracts the mean of the other
answers, which leaves the policy gradient unbiased (REINFORCE with a leave-one-out baseline, Kool et al. 2019; by turns,
as here, it is the TRLOO of the Dr. Kernel paper of 2026). Group-relative advantages subtract the mean of all answers,
and may divide by the standard deviation (DeepSeekMath's GRPO), which favours problems that are nearly always or nearly
never solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

from hipwright.train.records import AnswerOutcome
from hipwright.train.rl.settings import Baseline

EPSILON = 1e-6
"""Values that differ by less count as equal."""


def advantages(values: Sequence[float | None], baseline: Baseline) -> list[float | None]:
    """The advantages of one group, in order. None is left out of the baseline and stays None; a single value gives
    None."""
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


def has_no_variance(values: Sequence[float | None]) -> bool:
    """Whether a group has two values or more and no variance."""
    known = [value for value in values if value is not None]
    return len(known) > 1 and max(known) - min(known) < EPSILON


def returns(rewards: Sequence[float | None], discount: float) -> list[float | None]:
    """The return of each turn of one conversation: its reward, and a discounted share of the later gain.

        R_t = r_t + discount^(T - t) * max(r_T - r_t, 0)

    r_t is the reward of turn t, T the last turn with one. An answer that led to its repair thus has a higher return
    than one that did not, and a lower one than an answer that was correct at once; a worse later answer subtracts
    nothing. (Kevin, Baronio et al. 2025, sums the discounted scores of all later turns; here the gain alone counts, so
    that no return exceeds the best reward and turns after a correct answer add nothing.)
    """
    last = max((turn for turn, reward in enumerate(rewards) if reward is not None), default=0)
    final = rewards[last] if rewards else None
    return [
        None if reward is None else reward + discount ** max(last - turn, 0) * max((final or 0.0) - reward, 0.0)
        for turn, reward in enumerate(rewards)
    ]


def is_own_work(outcome: AnswerOutcome, least: float) -> bool:
    """False for a correct answer whose own kernels do less than `least` of the work: such answers are rejected.

    The share is that of the device time in own kernels where it was profiled, else the outcome's coverage (the share of
    the reference's modelled cost). Rejecting samples by their profile is the idea of Dr. Kernel (2026), where a program
    that leaves the work to the library teaches nothing about kernels; there it is by chance, here by a threshold.
    """
    if not outcome.correct:
        return True
    share = outcome.own_time if outcome.own_time is not None else outcome.coverage
    return share >= least
