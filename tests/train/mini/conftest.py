"""A corpus of a composition of each kind on the small scale, made once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from hipwright.capture.graph import Graph
from hipwright.engine import write
from hipwright.records import Program
from hipwright.train.mini.corpus import (
    Corpus,
    CorpusLine,
    CorpusSettings,
    at_shape,
    capture_composition,
    draw_choices,
    save,
    schedules,
)
from hipwright.train.mini.tasks import Composition

COMPOSITIONS = (
    Composition(("addrow", "gelu"), "float16"),
    Composition(("double", "softmax"), "float32"),
    Composition(("relu", "sum"), "float32"),
)
SHAPE = (24, 64)


@pytest.fixture(scope="session")
def graphs() -> dict[Composition, Graph]:
    """The graphs of the compositions at SHAPE."""
    return {one: at_shape(capture_composition(one), SHAPE) for one in COMPOSITIONS}


@pytest.fixture(scope="session")
def programs(graphs: dict[Composition, Graph]) -> list[Program]:
    """Programs of eight schedules of each graph."""
    rng = random.Random(5)
    return [write(graph, draw_choices(graph, rng)) for graph in graphs.values() for _ in range(8)]


@pytest.fixture(scope="session")
def corpus_folder(graphs: dict[Composition, Graph], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of three tasks with six programs each, in the files of `build`."""
    rng = random.Random(6)
    lines = tuple(
        CorpusLine(
            operators=one.operators, dtype=one.dtype, shape=SHAPE, programs=tuple(schedules(graph, rng, 6, Counter()))
        )
        for one, graph in graphs.items()
    )
    settings = CorpusSettings(scale="cpu", tasks=3, shapes=1, programs=6).to_dict()
    folder = tmp_path_factory.mktemp("corpus")
    save(Corpus(lines, {"settings": settings, "engine": "", "counts": {}}), folder)
    return folder
