"""Plans of products whose matrix is picked for each row: honest ones pass, wrong routes and orders are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright.machine import Machine
from tests.verify.written_tasks import HEAD, judged

FOLDER = Path(__file__).parents[2] / "programs/routed"
HONEST, WRONG = (sorted((FOLDER / kind).glob("*.py")) for kind in ("honest", "wrong"))
TASK = f"""{HEAD}class Model(nn.Module):
    def forward(self, x, chosen, gates, weight):
        made = (weight[chosen] @ x[:, None, :, None]).squeeze(-1)
        return (made * gates[..., None]).sum(1)


def make(rows, experts):
    chosen = torch.rand(rows, experts).topk(2).indices
    gates = torch.rand(rows, 2).softmax(-1)
    return [torch.randn(rows, 24), chosen, gates, torch.randn(experts, 24, 24)]


def get_inputs():
    return make(40, 4)


def get_input_groups():
    return [make(9, 5), make(66, 3)]
"""


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_an_honest_order_passes(path: Path, made: Machine) -> None:
    found = judged(made, TASK, path.read_text(encoding="utf-8"))
    assert found.passed, (found.status, found.message)


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_a_wrong_route_is_refused(path: Path, made: Machine) -> None:
    found = judged(made, TASK, path.read_text(encoding="utf-8"))
    assert found.status == "wrong_value" and found.fault == "candidate", (found.status, found.message)


def test_the_engines_own_program_passes(made: Machine) -> None:
    found = judged(made, TASK, choices={"call:matmul": "routed"})
    assert found.passed, (found.status, found.message)
