"""Live modules from the first line to the drop-in, by real searches on the cpu target."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import hipwright
from hipwright.api.live.module import FallbackWarning
from hipwright.errors import BadInput
from tests import warm
from tests.api.live.modules import Convolved, same

X = torch.randn(2, 3, 8, 8)


@pytest.fixture(autouse=True)
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    with warm.zygotes():
        yield


@pytest.mark.slow
def test_a_local_class_from_memory_to_a_folder_and_back(tmp_path: Path) -> None:
    module = Convolved().eval()
    result = hipwright.optimize(module, X, example_kwargs={"scale": 3.0}, target="cpu", budget=1)
    assert result.passed and "__global__" in result.source and "<html" in result.report()
    assert "<table>" in result._repr_html_() and result.run in result._repr_html_()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in (X, torch.randn(5, 3, 11, 7)):
            assert same(result.module(x, scale=3.0), module(x, scale=3.0))
        module.conv.weight.mul_(2)
        assert same(result.module(X, scale=3.0), module(X, scale=3.0)), "parameters are the live ones"
    again = hipwright.optimize(module, X, example_kwargs={"scale": 3.0}, target="cpu", budget=1)
    assert again.run == result.run, "the archive has the answer"

    folder = result.save(tmp_path / "saved")
    assert json.loads((folder / "result.json").read_text())["status"] == "pass"
    judged = hipwright.evaluate(module, folder / "program.py", ["cpu"], example_inputs=X, example_kwargs={"scale": 3.0})
    assert judged.passed
    with torch.no_grad():
        for loaded in (hipwright.load(folder), hipwright.load(folder, module)):
            assert same(loaded(X, scale=3.0), module(X, scale=3.0)) and loaded.program_calls == 1
        with pytest.raises(BadInput, match="other arguments"), pytest.warns(FallbackWarning):
            hipwright.load(folder)(X)
    with pytest.raises(BadInput, match="another module"):
        module.head[1] = torch.nn.Tanh()
        hipwright.load(folder, module)


@pytest.mark.slow
def test_the_callers_generators_are_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    layer = torch.nn.Linear(3, 2).eval()
    torch.set_rng_state(before)
    result = hipwright.optimize(layer, torch.ones(2, 3), target="cpu", budget=1)
    hipwright.load(result.save(tmp_path / "saved"), layer)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_buffers_that_a_program_writes() -> None:
    module, twin = torch.nn.BatchNorm1d(6), torch.nn.BatchNorm1d(6)
    result = hipwright.optimize(module, torch.randn(9, 6), target="cpu", budget=1)
    with torch.no_grad():
        for rows in (9, 9, 21):
            x = torch.randn(rows, 6)
            assert same(result.module(x), twin(x)) and same(dict(module.state_dict()), dict(twin.state_dict()))
    assert result.module.program_calls == 3 and int(module.num_batches_tracked) == 3


@pytest.mark.slow
def test_without_a_gpu_the_original_runs_and_says_so_once() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
    result = hipwright.optimize(module, torch.randn(3, 8), target=["gfx942", "cpu"], budget=1)
    x = torch.randn(3, 8)
    with torch.no_grad(), pytest.warns(FallbackWarning, match="no GPU here") as heard:
        assert torch.equal(result.module(x), module(x)) and torch.equal(result.module(x), module(x))
    assert result.passed and len(heard) == 1 and result.module.program_calls == 0


@pytest.mark.slow
def test_the_decorator_optimises_each_kind_of_call_once() -> None:
    @hipwright.kernel(target="cpu", budget=1)
    def gated(x: torch.Tensor, gate: torch.Tensor, power: int = 1) -> torch.Tensor:
        """Documented."""
        return x * torch.sigmoid(gate) ** power

    x = torch.randn(6, 10)
    assert gated.__doc__ == "Documented." and same(gated(x, x), x * torch.sigmoid(x))
    assert same(gated(x[:3], x[:3]), x[:3] * torch.sigmoid(x[:3])) and len(gated.modules) == 1
    assert same(gated(x, x, power=2), x * torch.sigmoid(x) ** 2) and len(gated.modules) == 2
    wanted = x.clone().requires_grad_()
    gated(wanted, x).sum().backward()
    assert same(wanted.grad, torch.sigmoid(x)) and len(gated.modules) == 2


def test_bad_calls_name_what_to_do() -> None:
    with pytest.raises(BadInput, match="is a class"):
        hipwright.optimize(torch.nn.Linear, torch.ones(1))
    with pytest.raises(BadInput, match="no example inputs"):
        hipwright.optimize(torch.nn.Linear(2, 2))
    with pytest.raises(BadInput, match="lazy"):
        hipwright.optimize(torch.nn.LazyLinear(2), torch.ones(1, 2))
    with pytest.raises(BadInput, match="one option"):
        hipwright.optimize(torch.nn.Linear(2, 2), torch.ones(1, 2), target="cpu", targets=["cpu"])
    with pytest.raises(TypeError, match="no option 'bugdet'"):
        hipwright.optimize(torch.nn.Linear(2, 2), torch.ones(1, 2), bugdet=3)  # type: ignore[call-overload]
