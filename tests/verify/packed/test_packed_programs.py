"""Plans of a product with 4-bit weights in words: other orders of rounding pass, wrong unpackings are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright.machine import Machine
from tests.verify.written_tasks import HEAD, judged

FOLDER = Path(__file__).parents[2] / "programs/packed"
HONEST, WRONG = (sorted((FOLDER / kind).glob("*.py")) for kind in ("honest", "wrong"))
TASK = f"""{HEAD}class Model(nn.Module):
    def forward(self, x, words, scales):
        shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=words.device)
        numbers = ((words[:, :, None] >> shifts) & 15).reshape(words.shape[0], scales.shape[1], -1)
        weight = (numbers - 8).to(x.dtype) * scales[:, :, None]
        return x @ weight.reshape(words.shape[0], -1).t()


def make(rows, columns, words, groups):
    return [
        torch.randn(rows, 8 * words).half(),
        torch.randint(-(2**31), 2**31 - 1, (columns, words), dtype=torch.int32),
        (torch.rand(columns, groups) + 0.5).half(),
    ]


def get_inputs():
    return make(16, 24, 32, 8)


def get_input_groups():
    return [make(3, 17, 64, 4), make(21, 40, 16, 4)]
"""


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_another_rounding_passes(path: Path, made: Machine) -> None:
    found = judged(made, TASK, path.read_text(encoding="utf-8"))
    assert found.passed, (found.status, found.message)


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_a_wrong_unpacking_is_refused(path: Path, made: Machine) -> None:
    found = judged(made, TASK, path.read_text(encoding="utf-8"))
    assert found.status == "wrong_value" and found.fault == "candidate", (found.status, found.message)


def test_the_engines_own_program_passes(made: Machine) -> None:
    assert judged(made, TASK, choices={"call:matmul": "packed"}).passed
