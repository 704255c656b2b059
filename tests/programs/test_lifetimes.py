"""A lowered plan frees a tensor once nothing names it any more, and computes what it computed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.program.lower.trace import NoopLauncher
from hipwright.program.lower.live_bytes import LiveBytes

from tests.program.support import HIP

ONE = 4 * 64 * 64
CHAIN = "    a = x * 2\n" + "".join(f"    {to} = {of} + 1\n" for of, to in pairwise("abcdef"))
KEPT = "    a = x * 2\n    b = a + 1\n    c = b + 1\n    d = c + 1\n    return a + d\n"
BRANCH = "    a = x * 2\n    if x.shape[0] > 1:\n        b = a + 1\n    else:\n        b = a\n    c = b + 1\n    return c\n"
LOOP = "    a = x * 2\n    for n in range(x.shape[0]):\n        a = a + n\n    b = a + 1\n    return b + 1\n"
VIEW = "    a = x * 2\n    b = a.reshape(-1)\n    c = b + 1\n    d = c.reshape(64, 64)\n    return d + 1\n"
ONCE = "    x = x + 1\n    y = x + 1\n    return y + 1\n"
NESTED = "    a = [x * 2, x * 3]\n    b = [t + 1 for t in a]\n    return b[0] + b[1]\n"


def plan_of(body: str) -> Any:
    return lower(parse(HIP + f"def forward(self, x):\n{body}"), {}, {}, NoopLauncher())


@pytest.mark.parametrize(
    "body, most",
    [
        (CHAIN + "    return f\n", 2),
        (CHAIN + "    return f + 1, f\n", 2),
        (KEPT, 3),
        (BRANCH, 2),
        (VIEW, 2),
        (LOOP, 2),
        (ONCE, 2),
        (NESTED, 5),
    ],
)
def test_what_lives_at_once(body: str, most: int) -> None:
    plan, x = plan_of(body), torch.randn(64, 64)
    with torch.no_grad(), LiveBytes() as living:
        found = plan.forward(x)
    assert living.most <= most * ONE
    scope: dict[str, Any] = {}
    exec(f"def forward(x):\n{body}", scope)
    torch.testing.assert_close(found, scope["forward"](x), rtol=0, atol=0)


def test_memory_of_launches_is_freed() -> None:
    names = ["x", "a", "b", "c", "d", "e"]
    steps = [
        f"    {to} = torch.empty((64, 64), dtype=torch.float32)\n    relu[64, 64]({of}, {to}, 4096)\n"
        for of, to in pairwise(names)
    ]
    plan = plan_of("".join(steps) + "    return e\n")
    with torch.no_grad(), LiveBytes() as living:
        plan.forward(torch.randn(64, 64))
    assert living.most <= 3 * ONE
