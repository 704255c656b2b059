"""A whole model from its script to a faster one: searches, programs in the model, the folder, and the same again."""

from __future__ import annotations

import importlib.util
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hipwright import config
from hipwright.api.files import read_text
from hipwright.api.inputs import TaskSource
from hipwright.api.optimize import SearchRequest, run_search
from hipwright.api.whole.files import write_outcome
from hipwright.api.whole.improve import ModelRequest, improve_model
from hipwright.api.whole.search import answered, interrupted
from hipwright.api.whole.source import model_source
from hipwright.api.whole.take import load_parts
from hipwright.archive import Archive, list_runs
from hipwright.errors import BadInput, TaskError
from hipwright.machine import machine
from tests import warm

EXAMPLE = Path(__file__).parents[3] / "examples" / "models" / "encoder.py"
TASK = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 3


def get_inputs():
    return [torch.randn(8, 16)]
"""

TWO_PARTS = """import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64))
        self.second = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Softmax(dim=-1))

    def forward(self, x):
        x = self.first(x)
        return self.second(x if float(x.sum()) > 1e9 else x * 2)  # no task as a whole


def get_inputs():
    return [torch.randn(256, 64)]
"""


@pytest.fixture(autouse=True)
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    with warm.zygotes():
        yield


def encoder() -> tuple[torch.nn.Module, list[torch.Tensor]]:
    spec = importlib.util.spec_from_file_location("encoder", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(3)
    return module.Model().eval(), module.get_inputs()


@pytest.mark.slow
def test_an_encoder_with_programs_in_its_blocks(tmp_path: Path) -> None:
    request = ModelRequest(model_source(str(EXAMPLE)), ("cpu",), budget=1, regions=1)
    found = improve_model(request)
    assert found.passed and found.kept[0].region.paths == ("blocks.0", "blocks.1", "blocks.2")
    assert found.kept[0].calls == 3 and not found.kept[0].fallbacks
    assert found.gate["truth"] == "float64" and found.gate["inputs"] == 2
    assert found.gate["error"] <= found.gate["limit"]
    assert found.metric is not None and found.metric["programs"] == found.metric["eager"]
    assert found.speedup is None and any("says nothing of a program's speed" in note for note in found.notes)
    write_outcome(found, request, tmp_path / "out")
    plain = json.loads(read_text(tmp_path / "out" / "model.json", "model"))
    assert plain["status"] == "pass" and plain["regions"][0]["replaced"]
    page = read_text(tmp_path / "out" / "model.html", "page")
    assert "blocks.0 … blocks.2" in page and "<script" not in page
    _taken_home(tmp_path / "out")
    events: list[str] = []
    again = improve_model(request, listener=lambda kind, data: events.append(str(data.get("text", ""))))
    assert again.passed and any("the archive has the answer" in text for text in events)


@pytest.mark.slow
def test_a_region_without_a_program_is_searched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def refusing(request: SearchRequest, *how: Any) -> Any:
        tried.append(request.task.read())
        if len(tried) == 1:
            raise TaskError("its graph is too large")
        return answered(request, *how)

    monkeypatch.setattr("hipwright.api.whole.search.answered", refusing)
    found = improve_model(ModelRequest(model_source(str(EXAMPLE)), ("cpu",), budget=1, regions=1))
    assert len(tried) == 2 and found.passed
    plain = found.to_dict()
    (whole,) = plain["in_parts"]
    assert whole["paths"] == ["blocks.0", "blocks.1", "blocks.2"]
    kept = found.kept[0].region.paths  # normalisation layers may be the costliest part: one outside the blocks is alike
    assert set(whole["paths"]) <= {path.rpartition(".")[0] for path in kept} and not set(whole["paths"]) & set(kept)
    assert "too large" in whole["why"]
    assert any("too large" in one["why"] for one in plain["stays"])


def _taken_home(folder: Path) -> None:
    """The folder's programs in a model of this process with other weights; other sizes by guards or the model's own."""
    model, inputs = encoder()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own, other = model(*inputs), torch.randint(0, 500, (3, 7))
        own_other = model(other)
        assert load_parts(folder, model, inputs) == {}
        torch.testing.assert_close(model(*inputs), own, rtol=1e-4, atol=1e-5)
        assert [block.program_calls for block in model.blocks] == [1, 1, 1]
        torch.testing.assert_close(model(other), own_other, rtol=1e-4, atol=1e-5)
        assert all(b.program_calls + sum(b.fallbacks.values()) == 2 for b in model.blocks)
    wider, inputs = encoder()
    wider.blocks[1].up = torch.nn.Linear(64, 100)
    wider.blocks[1].down = torch.nn.Linear(100, 64)
    assert set(load_parts(folder, wider, inputs)) == {"blocks.1"}


@pytest.mark.slow
def test_a_search_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    task = TaskSource("region", text=TASK)
    request = SearchRequest(task=task, targets=("cpu",), budget=2, seed=0)
    assert interrupted(request) == ""

    def stop(kind: str, data: dict[str, Any]) -> None:
        if kind == "evaluated":
            raise KeyboardInterrupt

    with machine(("cpu",), unsafe=False) as bench:
        assert run_search(request, on=bench, listener=stop).search.interrupted
        run = interrupted(request)
        assert run and interrupted(replace(request, budget=3)) == ""
        found = answered(request, bench, lambda kind, data: None)
    assert found.run == run and found.passed
    with Archive(config.home(), create=False) as archive:
        assert [one.status for one in list_runs(archive)] == ["finished"]


def test_a_folder_that_is_no_models_is_refused(tmp_path: Path) -> None:
    model, inputs = encoder()
    for text in ("", "{}", '{"format": 99, "programs": []}'):
        (tmp_path / "model.json").write_text(text)
        with pytest.raises(BadInput):
            load_parts(tmp_path, model, inputs)


@pytest.mark.slow
def test_regions_that_are_searched_beside_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two.py").write_text(TWO_PARTS)
    monkeypatch.setattr("hipwright.api.whole.search.at_a_time", lambda: 2)
    events: list[tuple[str, Any]] = []
    request = ModelRequest(model_source(str(tmp_path / "two.py")), ("cpu",), budget=4, regions=2)
    found = improve_model(request, listener=lambda kind, data: events.append((kind, data.get("region"))))
    assert found.passed and len(found.regions) == 2 and all(one.result is not None for one in found.regions)
    order = [event for event in events if event[0].startswith("region")]
    assert {kind for kind, _ in order[:2]} == {"region"} and len(order) == 4, "both began before one ended"
    assert set(found.seconds) == {"profile", "searches", "in the model"}
    assert found.seconds["searches"] < sum(one.seconds for one in found.regions)
    with Archive(config.home(), create=False) as archive:
        assert [one.status for one in list_runs(archive)] == ["finished", "finished"]
