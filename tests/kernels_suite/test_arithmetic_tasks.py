"""Products and convolutions bound by arithmetic (benchmarks/arithmetic): matrix units are the default for each."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from hipwright.engine.authoring import author
from hipwright.engine.knobs import SPLIT
from tests.engine.harness import captured

TASKS = sorted((Path(__file__).parents[2] / "benchmarks/arithmetic").glob("*.py"))


def opened(path: Path) -> Any:
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.matrix(keep=5)
@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_the_default_is_split(path: Path) -> None:
    with torch.device("meta"):
        module = opened(path)
        model, inputs = module.Model(), module.get_inputs()
    graph = captured(model, inputs)

    def default(wanted: bool) -> str:
        choices = author(graph, {SPLIT: wanted}).space.items()
        (call,) = (choice.default for key, choice in choices if key.startswith("call:") and key.count(":") == 1)
        return str(call)

    assert default(True) == "split"
    assert default(False) != "split"  # of other targets than NVIDIA's GPUs


def test_there_are_products_and_convolutions() -> None:
    names = [path.stem for path in TASKS]
    assert len(names) == 17 and sum("conv" in name for name in names) == 9
