"""scripts/large_training.py: the figures of its lines, and random weights that transformers loads."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from hipwright.train import tiny

pytest.importorskip("transformers")
PATH = Path(__file__).parents[3] / "scripts/large_training.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("large_training", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_first_update_is_left_out_and_shares_are_of_all_processes(script: Any) -> None:
    def line(step: int, seconds: float, wait: float, memory: float) -> dict[str, float]:
        return {
            "step": step,
            "seconds": seconds,
            "seconds_wait": wait,
            "tokens": 100.0 * step,
            "reserved_gb": memory,
            "allocated_gb": memory / 2,
        }

    one = [line(1, 60.0, 30.0, 9.0), line(2, 2.0, 0.5, 10.0), line(3, 2.0, 0.5, 10.0)]
    two = [line(1, 60.0, 30.0, 8.0), line(2, 2.0, 1.0, 8.0), line(3, 2.0, 0.0, 8.0)]
    found = script.figures([one, two])
    assert (found["updates"], found["update_s"], found["tokens_a_second"]) == (3, 2.0, 50.0)
    assert found["shares"] == {"wait": 0.25} and found["memory_gb"] == [10.0, 8.0]


@pytest.mark.filterwarnings("ignore")
def test_random_weights_load_as_a_model(script: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    tokenizer = tiny.train_tokenizer(["def f(x): return x\n"] * 20)
    count = script.write_model(tmp_path / "model", script.shape(2, 64, 0), tokenizer, "cpu")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert sum(one.numel() for one in model.parameters()) == count
    assert model.model.norm.weight.unique().tolist() == [1.0]
    assert 0.015 < model.lm_head.weight.float().std().item() < 0.025
