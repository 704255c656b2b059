"""Fixtures: a machine with running zygotes, and the loader of Hugging Face data sets without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hipwright.api.data.hooks import evidence_text, mutants, search_pairs
from hipwright.dataset.make import BuildSettings, Hooks, make_pairs
from hipwright.dataset.records import Pair
from hipwright.dataset.tasks import DatasetTask
from hipwright.machine import Machine
from hipwright.machine import machine as open_machine
from tests import warm
from tests.dataset import tiny

ONE_OF_EACH = BuildSettings(targets=("gfx942", "gfx950", "cpu"), variants=1, negatives=1)


@pytest.fixture(scope="module", autouse=True)
def _warm() -> Iterator[None]:
    with warm.zygotes():
        yield


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    with ExitStack() as stack:
        with warm.zygotes():
            made = stack.enter_context(open_machine(("gfx942", "gfx950", "cpu"), unsafe=False))
        yield made


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """datasets.load_dataset of a folder, without a network and with a cache of its own."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return lambda folder, *name: datasets.load_dataset(str(folder), *name, cache_dir=str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def pairs(machine: Machine) -> dict[str, Pair]:
    """One pair of each kind."""
    made = make_pairs(machine, DatasetTask("rows", tiny.ROWS), ONE_OF_EACH, Hooks(mutants, evidence_text, search_pairs))
    return {pair.kind: pair for pair in made.pairs}
