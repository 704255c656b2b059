"""torch.compile by the backend: values, gradients and buffers against eager, and which graphs its programs ran."""

from __future__ import annotations

import copy
import json
import subprocess
import tomllib
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import hipwright
from hipwright.api.dynamo import graphs as graphs_module
from hipwright.api.dynamo import machines
from hipwright.api.dynamo.entry import register
from hipwright.api.dynamo.graph_task import graph_task
from hipwright.api.dynamo.graphs import CompiledGraph, wait
from hipwright.api.dynamo.options import BackendOptions
from hipwright.api.live.module import FallbackWarning
from hipwright.errors import BadInput, SandboxMissing, TaskError
from tests import warm

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-corpora/bin/python"
F = torch.nn.functional


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    torch._dynamo.reset()
    with warm.zygotes():
        yield
    machines.KEPT.close()
    torch._dynamo.reset()


class Branching(torch.nn.Module):
    """A graph break on a value, buffers in training mode, and a free batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.gelu(self.norm(self.first(x)))
        y = y * 2 if y.sum() > 0 else torch.tanh(y)
        return self.second(y) + x


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend=hipwright.backend, options={"target": "cpu", **options})


def new_graphs(before: int) -> list[CompiledGraph]:
    return hipwright.compiled_graphs()[before:]


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_graph_breaks_and_a_batch_that_varies() -> None:
    model, before = Branching().eval(), len(hipwright.compiled_graphs())
    twin, fast = copy.deepcopy(model), compiled(model)
    with torch.no_grad():
        for batch in (5, 6, 9):
            x = torch.randn(batch, 8)
            assert close(fast(x), twin(x)) and close(fast(x), twin(x))
    made = new_graphs(before)
    assert len(made) == 4 and {graph.status for graph in made} == {"verified"}, made
    assert sum(graph.program_calls for graph in made) == 12, "no call was eager"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_training_by_both_halves() -> None:
    model, before = Branching().train(), len(hipwright.compiled_graphs())
    twin, fast = copy.deepcopy(model), compiled(model)
    for one in (fast, twin):
        steps = torch.optim.SGD(one.parameters(), 0.1)
        torch.manual_seed(0)
        for _ in range(3):
            steps.zero_grad()
            one(torch.randn(6, 8)).square().mean().backward()
            steps.step()
    assert all(map(close, model.parameters(), twin.parameters())) and int(model.norm.num_batches_tracked) == 3
    assert all(map(close, model.buffers(), twin.buffers()))
    made = new_graphs(before)
    assert {graph.part for graph in made} == {"forward", "backward"}
    assert all(graph.status == "verified" and graph.program_calls for graph in made), made


@pytest.mark.slow
def test_the_archive_answers_and_nothing_else_where_that_is_asked() -> None:
    model, x, before = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh()).eval(), torch.randn(3, 4), 0
    with torch.no_grad():
        before = len(hipwright.compiled_graphs())
        assert close(compiled(model, answers="archive")(x), model(x))
        (first,) = new_graphs(before)
        assert first.status == "eager" and "the archive has no answer" in first.why
        for answers in ("search", "archive"):
            torch._dynamo.reset()
            assert close(compiled(model, answers=answers)(x), model(x))
    _, second, third = new_graphs(before)
    assert second.result is not None and third.result is not None
    assert third.status == "verified" and third.result.run == second.result.run


@pytest.mark.slow
def test_in_the_background_calls_are_eager_until_the_answer_is_there() -> None:
    before = len(hipwright.compiled_graphs())
    fast = compiled(lambda x: torch.softmax(x * 3, -1), background=True)
    x = torch.randn(4, 9)
    assert close(fast(x), torch.softmax(x * 3, -1))
    (graph,) = new_graphs(before)
    assert graph.program_calls == 0 and graph.fallbacks
    wait()
    assert close(fast(x), torch.softmax(x * 3, -1)) and graph.status == "verified" and graph.program_calls == 1


def test_what_cannot_be_contained_or_verified_runs_eager() -> None:
    before = len(hipwright.compiled_graphs())
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    torch.manual_seed(3)
    found = compiled(model)(x := torch.ones(2, 4))
    torch.manual_seed(3)
    assert torch.equal(found, model(x))
    (graph,) = new_graphs(before)
    assert graph.status == "eager" and "draws random numbers" in graph.why


def test_a_missing_sandbox_is_said_once_and_nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise SandboxMissing("no sandbox here", hint="install bubblewrap")

    monkeypatch.setattr(graphs_module.KEPT, "use", missing)
    fast = compiled(lambda x: torch.relu(x) * 5)
    with pytest.warns(FallbackWarning, match="no sandbox here .install bubblewrap") as heard:
        assert torch.equal(fast(x := torch.randn(3)), torch.relu(x) * 5)
        assert torch.equal(fast(x), torch.relu(x) * 5)
    assert len(heard) == 1


def test_a_fault_of_a_program_leaves_the_graph_eager() -> None:
    class Failing:
        device = "cpu"

        def __call__(self, inputs: Any, state: Any) -> Any:
            raise TaskError("it broke")

    before = len(hipwright.compiled_graphs())
    fast = compiled(lambda x: torch.relu(x) - 5, answers="archive")
    fast(x := torch.randn(3))
    (graph,) = new_graphs(before)
    graph._program, graph.status = Failing(), "verified"
    assert torch.equal(fast(x), torch.relu(x) - 5) and "it broke" in graph.why
    assert torch.equal(fast(x), torch.relu(x) - 5) and graph.fallbacks["the program failed: it broke"] == 1


def test_options() -> None:
    made = BackendOptions.of("max-autotune", {"target": "cpu", "background": True})
    assert made.budget == 40 and made.targets == ("cpu",) and BackendOptions.of(None, None).budget == 1
    assert made.device_graphs and not BackendOptions.of("max-autotune-no-cudagraphs", None).device_graphs
    assert not BackendOptions.of(None, {"device_graphs": False}).device_graphs
    for mode, options, said in (
        ("fastest", None, "no mode 'fastest'"),
        (None, {"bugdet": 3}, "no option 'bugdet'"),
        (None, {"answers": "guess"}, "answers='guess'"),
    ):
        with pytest.raises(BadInput, match=said) as raised:
            BackendOptions.of(mode, options)
        assert raised.value.hint
    with pytest.raises(BadInput, match="no NVIDIA GPU here"):
        _ = BackendOptions(target="cuda").targets


def test_it_is_found_by_its_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["hipwright"].partition(":")
    assert getattr(import_module(module), name) is hipwright.backend
    register()
    assert "hipwright" in torch._dynamo.list_backends()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = torch.compile(
            lambda x: x.neg() * 7, backend="hipwright", options={"target": "cpu", "answers": "archive"}
        )
        assert torch.equal(fast(x := torch.randn(3)), x.neg() * 7)


def test_a_size_that_no_input_has_is_fixed() -> None:
    graph = torch.fx.symbolic_trace(lambda x, n: (x * n, n, None, x))
    nodes = list(graph.graph.nodes)
    nodes[0].meta["val"] = nodes[2].meta["val"] = torch.randn(3, device="meta")
    made = graph_task("fixed", graph, [torch.randn(3), 4], [])
    assert dict(made.fixed) == {1: 4} and "x * 4" in made.task.text
    assert [one.output for one in made.results] == [0, None, None, None]
    assert [one.argument for one in made.results] == [None, 1, None, 0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_sizes_that_are_multiples_stay_free() -> None:
    layer = torch.nn.Linear(8, 8)

    def halves(x: torch.Tensor) -> torch.Tensor:
        y = layer(x).view(x.shape[0] * 2, 4).tanh()
        return (y * y).reshape(x.shape[0], 8)

    before = len(hipwright.compiled_graphs())
    fast = torch.compile(halves, backend=hipwright.backend, options={"target": "cpu"}, dynamic=True)
    for rows in (5, 7, 9):
        given = [torch.ones(rows, 8, requires_grad=True) for _ in range(2)]
        for way, x in zip((fast, halves), given, strict=True):
            way(x).sum().backward()
        assert close(given[0].grad, given[1].grad)
    made = new_graphs(before)
    assert [graph.program_calls for graph in made] == [3, 3] and not any(graph.fallbacks for graph in made), made


ALL = pytest.mark.exhaustive
MODELS = [
    pytest.param("vit", False),
    pytest.param("decoder", False),
    pytest.param("resnet18", False),
    pytest.param("encoder", False, marks=ALL),
    pytest.param("diffusion", False, marks=ALL),
    pytest.param("vit", True, marks=ALL),
    pytest.param("decoder", True, marks=ALL),
    pytest.param("resnet18", True, marks=ALL),
]


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="make test installs .venv-corpora")
@pytest.mark.parametrize("name, train", MODELS)
def test_models_of_packages(name: str, train: bool, tmp_path: Path) -> None:
    command = [PYTHON, "-m", "benchmarks.corpora.compiled", name, "--json", *(["--train"] if train else [])]
    environment = {"HIPWRIGHT_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    environment["HOME"] = str(Path.home())
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["error"] < 1e-4 and found["verified"] >= 1
    assert all(
        graph["status"] in ("verified", "eager") and (graph["why"] or graph["program_calls"])
        for graph in found["graphs"]
    )
