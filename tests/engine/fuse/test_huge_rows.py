"""What reads a huge row, or odd runs, again behind its reduction has a kernel of its own; other rows are read once."""

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


@pytest.mark.parametrize(("height", "wanted"), [(17, 2), (18, 1)])
def test_readers_of_rows_of_odd_runs_are_apart(height: int, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No vector divides a plane of 17 x 17, unlike one of 18 x 18, so that each element's place is a division."""
    x = torch.randn(4, 3, height, height, generator=torch.Generator().manual_seed(1))

    def norm(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.nn.functional.batch_norm(x, None, None, training=True))

    assert len(kernels(check(Op(norm), [x]))) == 1
    monkeypatch.setattr(schedule, "ODD_TOTAL", 2048)
    assert len(kernels(check(Op(norm), [x], other=[x[:3, :, 1:]]))) == wanted
