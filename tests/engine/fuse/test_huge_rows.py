"""What reads a huge row again behind its reduction has a kernel of its own; other rows are read by one kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hipwright.engine import write
from hipwright.engine.fuse import schedule
from hipwright.program import parse
from tests.engine.harness import Op, captured, check

Function = Callable[[torch.Tensor], torch.Tensor]
WHOLE: dict[str, Function] = {
    "norm": lambda x: x / torch.linalg.vector_norm(x),
    "softmax": lambda x: x.flatten().softmax(0).view(x.shape),
    "centred": lambda x: (x - x.mean()) * 2,
}


def kernels(text: str) -> list[str]:
    return [name for name in parse(text).signatures if not name.endswith("_exact")]


@pytest.mark.parametrize("name", WHOLE)
def test_readers_of_a_huge_row_are_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(9, 500, generator=torch.Generator().manual_seed(0))
    assert len(kernels(check(Op(WHOLE[name]), [x]))) == 1
    monkeypatch.setattr(schedule, "APART_ROW", 4096)
    text = check(Op(WHOLE[name]), [x], other=[x[:3]])
    assert len(kernels(text)) == 2


def test_the_sum_of_a_gigabyte_waits_for_nobody() -> None:
    text = write(captured(Op(lambda x: x / x.norm()), [torch.empty(64, 64, 256, 256)])).text
    assert len(kernels(text)) == 2 and "COOP_BLOCKS = knob(1024" in text
