"""Mutated programs: the result is a plan or a HipwrightError, never a crash of hipwright."""

from __future__ import annotations

import random
import re
import warnings

import pytest
import torch

from hipwright.errors import HipwrightError
from hipwright.program import parse
from hipwright.program.lower.closures import lower

from .golden_case import Stack
from .support import HIP, KERNELS, FakeLauncher, state_of
from .test_good import GOOD

TOKENS = re.compile(r"\w+|[^\w\s]|\s+")
POOL = [*sorted({t for c in GOOD for t in TOKENS.findall(c.text)}), "__class__", "lambda: 0", "-1", "0", "10**9"]


def mutate(text: str, rng: random.Random) -> str:
    """The text with one to three tokens replaced, dropped, doubled or swapped."""
    tokens = TOKENS.findall(text)
    for _ in range(rng.randint(1, 3)):
        i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(4):
            case 0:
                tokens[i] = rng.choice(POOL)
            case 1:
                tokens[i] = ""
            case 2:
                tokens.insert(i, tokens[j])
            case _:
                tokens[i], tokens[j] = tokens[j], tokens[i]
    return "".join(tokens)


def attempt(text: str) -> str:
    """How far a program gets: "refused", "failed" or "ran"."""
    try:
        plan = lower(parse(HIP + text), {}, state_of(Stack()), FakeLauncher(KERNELS))
    except HipwrightError:
        return "refused"
    try:
        plan.forward(*[torch.randn(4, 6)] * len(plan.inputs))
    except HipwrightError:
        return "failed"
    return "ran"


@pytest.mark.parametrize("seed", range(4))
def test_mutated_programs_are_answered(seed: int) -> None:
    rng = random.Random(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of unusual arguments
        outcomes = [attempt(mutate(rng.choice(GOOD).text, rng)) for _ in range(250)]
    assert {"refused", "ran"} <= set(outcomes)
