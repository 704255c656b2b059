"""The whole models of the benchmark run, and its figures are what they say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.corpora import whole, whole_models
from benchmarks.corpora.networks import TORCHVISION

PACKAGES = {
    "resnet18": "torchvision",
    "vit": "torchvision",
    "encoder": "transformers",
    "prefill": "transformers",
    "speech": "transformers",
    "diffusion": "diffusers",
}


@pytest.mark.parametrize("name", whole_models.MODELS)
def test_each_model_runs_in_its_small_form(name: str) -> None:
    if name in PACKAGES:
        exec(TORCHVISION, {})
        pytest.importorskip(PACKAGES[name])
    model, inputs = getattr(whole_models, f"small_{name}")()
    with torch.no_grad():
        found = model.eval()(*(inputs if isinstance(inputs, tuple) else (inputs,)))
    first = found if isinstance(found, torch.Tensor) else next(iter(found.values()))
    assert bool(torch.isfinite(first).all())


def row(eager: float, compiled: float | None = None) -> dict[str, Any]:
    speedup = {"eager": eager, **({"compile": compiled} if compiled else {})}
    return {"times": "device", "measured": {"speedup": speedup}}


def test_the_mean_is_over_the_better_baseline_and_unchanged_models_count_as_one() -> None:
    rows = {"a": row(4.0, 2.0), "b": row(1.5), "c": {"times": "device", "measured": None}, "d": {"error": "no"}}
    assert [whole.better(one) for one in rows.values()] == [2.0, 1.5, 1.0, None]
    assert whole.summary(rows).startswith("3 models: 1.442x") and "least 1.000x" in whole.summary(rows)
    assert "no GPU" in whole.summary({"a": {"times": "estimate"}})


def test_an_unknown_model_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert whole.main(["nothing"]) == 2 and "no model 'nothing'" in capsys.readouterr().err
