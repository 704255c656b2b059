"""The schedule grid of some tasks: the time of its best schedule is the reference of a policy's regret."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from hipwright.capture.graph import Graph
from hipwright.engine import space, write
from hipwright.llm.compact import shortened
from hipwright.program import parse
from hipwright.records import Program
from hipwright.train.mini.corpus import at_shape, capture_composition, drawn_options
from hipwright.train.mini.tasks import HELD_OUT, Composition
from hipwright.train.records import TrainingProblem

if TYPE_CHECKING:
    from hipwright.train.mini.settings import MiniEvaluationSettings


def grid(tasks: Sequence[TrainingProblem], settings: MiniEvaluationSettings) -> dict[str, list[str]]:
    """The short programs of `regret` tasks of each split, by task; pointwise tasks, with few schedules, come first.

    Of a task with more than `grid` schedules so many are drawn uniformly.
    """
    found: dict[str, list[str]] = {}
    for split in HELD_OUT:
        some = sorted((t for t in tasks if t.split == split), key=lambda t: t.facts["family"] != "pointwise")
        for task in some[: settings.regret]:
            texts = list(dict.fromkeys(all_schedules(_graph(task))))
            if len(texts) > settings.grid:
                texts = random.Random(f"grid {task.name}").sample(texts, settings.grid)
            found[task.name] = texts
    return found


def all_schedules(graph: Graph) -> Iterator[str]:
    """The short programs for any shape of every structure that the corpus draws, with every setting of its knobs."""
    structures = {
        key: drawn_options(key, choice.options) for key, choice in space(graph).items() if choice.kind == "structure"
    } | {"fuse": [True], "wide": [False], "exact": [False]}
    for values in product(*structures.values()):
        choices: dict[str, Any] = dict(zip(structures, values, strict=True))
        text = write(graph, choices).text
        knobs = parse(text).knobs
        for chosen in product(*(knob.choices for knob in knobs.values())):
            yield shortened(Program(text=text, knobs=dict(zip(knobs, map(int, chosen), strict=True))))


def _graph(task: TrainingProblem) -> Graph:
    """The engine's graph of a task, made from the operators in its name."""
    *operators, _, _ = task.name.split("-")
    composition = Composition(tuple(operators), task.facts["dtype"])
    rows, columns = task.facts["shape"]
    return at_shape(capture_composition(composition), (rows, columns))
