"""A machine says what it lacks before it is used up."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright import machine
from hipwright.errors import TaskError

PARAMETERS = (64 * 64 + 64) * 4  # bytes
TASK = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
    def forward(self, x):
        return self.layer(x)
def get_inputs():
    return [torch.randn(2, 64)]
"""


def test_parameters_that_fill_the_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would end the command otherwise, or another program of the user's."""
    path = tmp_path / "task.py"
    path.write_text(TASK)
    with machine.machine(("cpu",), unsafe=False, cache=tmp_path / "builds") as made:
        monkeypatch.setattr(machine, "_available_bytes", lambda: PARAMETERS * machine._CPU_COPIES - 1)
        with pytest.raises(TaskError, match=r"its 0\.0 GB of parameters need .* on the cpu target") as caught:
            made.open(path, seed=1, listener=lambda *_: None).__enter__()
        assert caught.value.exit_code == 2 and "GPU" in caught.value.hint
        monkeypatch.setattr(machine, "_available_bytes", lambda: PARAMETERS * machine._CPU_COPIES)
        with made.open(path, seed=1, listener=lambda *_: None) as bench:
            assert bench.handle.parameter_bytes == PARAMETERS
    monkeypatch.undo()
    available = machine._available_bytes()
    assert available is None or available > 1 << 20
