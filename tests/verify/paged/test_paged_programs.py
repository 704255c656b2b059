"""Plans of decoding with keys and values in pages: honest reads pass; wrong pages, slots and lengths are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright.machine import Machine
from tests.verify.written_tasks import HEAD, judged

FOLDER = Path(__file__).parents[2] / "programs/paged"
HONEST, WRONG = (sorted((FOLDER / kind).glob("*.py")) for kind in ("honest", "wrong"))
TASK = f"""{HEAD}class Model(nn.Module):
    def forward(self, q, key_cache, value_cache, table, lengths):
        q = q.unflatten(1, (2, 2)).float()
        keys = key_cache[table].flatten(1, 2).transpose(1, 2).float()
        values = value_cache[table].flatten(1, 2).transpose(1, 2).float()
        scores = q @ keys.transpose(-1, -2) * 16**-0.5
        place = torch.arange(keys.shape[2], device=q.device)
        scores = scores.masked_fill(place >= lengths[:, None, None, None], float("-inf"))
        return (torch.softmax(scores, dim=-1) @ values).flatten(1, 2).to(torch.bfloat16)


def make(sequences, blocks):
    pages = sequences * blocks + 3
    return [
        torch.randn(sequences, 4, 16).bfloat16(),
        torch.randn(pages, 8, 2, 16).bfloat16(),
        torch.randn(pages, 8, 2, 16).bfloat16(),
        torch.randperm(pages)[: sequences * blocks].view(sequences, blocks),
        torch.randint(1, 8 * blocks + 1, (sequences,)),
    ]


def get_inputs():
    return make(6, 3)


def get_input_groups():
    return [make(3, 2), make(9, 4)]
"""


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_an_honest_read_passes(path: Path, made: Machine) -> None:
    found = judged(made, TASK, path.read_text(encoding="utf-8"))
    assert found.passed, (found.status, found.message)


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_a_wrong_read_is_refused(path: Path, made: Machine) -> None:
    found = judged(made, TASK, path.read_text(encoding="utf-8"))
    assert found.status == "wrong_value" and found.fault == "candidate", (found.status, found.message)
