"""Drop-ins of a GPU: the packages that they import, called with live state. Kernels run on the cpu target here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hipwright.api.live.exported import live_task
from hipwright.api.live.module import FallbackWarning, OptimizedModule
from hipwright.api.live.packaged import PackagedProgram
from hipwright.api.live.task_file import task_file
from hipwright.capture.forward import capture
from hipwright.capture.graph import Graph
from hipwright.engine import write
from hipwright.errors import GuardFailed, ToolchainError
from tests.api.live.modules import same
from tests.ship.shipping import on_cpu


def packaged(module: torch.nn.Module, x: torch.Tensor, *, kernels: bool = True) -> OptimizedModule:
    """A module with the engine's program of its task, in a package."""
    live = live_task(module, (x,), {}, type(module).__name__)
    file = task_file(live.task.text)
    program = write(Graph.from_dict(capture(file.model, file.inputs)), {})
    made = PackagedProgram(program, live.task.text, file.inputs, file.state)
    made.device = "cpu"
    if kernels:
        made._module.KERNELS._made[torch.device("cpu")] = on_cpu(program.text)
    return OptimizedModule(module, live, made)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPWRIGHT_CACHE", str(tmp_path))


@pytest.mark.slow
def test_parameters_sizes_and_written_buffers() -> None:
    module, twin = torch.nn.BatchNorm1d(6), torch.nn.BatchNorm1d(6)
    made = packaged(module, torch.randn(9, 6))
    with torch.no_grad():
        for rows in (9, 21):
            x = torch.randn(rows, 6)
            assert same(made(x), twin(x)) and same(dict(module.state_dict()), dict(twin.state_dict()))
        module.weight.mul_(3)
        twin.weight.mul_(3)
        assert same(made(x), twin(x))
    assert made.program_calls == 3 and not made.fallbacks


@pytest.mark.slow
def test_what_the_package_refuses_is_the_originals() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh()).eval()
    made = packaged(module, torch.randn(3, 4), kernels=False)
    program = made.__dict__["_program"]
    state = {name: tensor.detach() for name, tensor in made._state().items()}
    with torch.no_grad():
        with pytest.raises(ToolchainError, match="these kernels run on a GPU"):
            program([torch.randn(3, 4)], state)
        with pytest.raises(GuardFailed, match="the kernels are for"):
            program([torch.randn(3, 4)], {**state, next(iter(state)): torch.randn(2, 2)})
        with pytest.warns(FallbackWarning, match="run on a GPU"):
            assert torch.equal(made(x := torch.randn(3, 4)), module(x))
