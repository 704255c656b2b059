"""The fields of a pair that describe its task: from the synthesis record, or computed from the captured graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hipwright.dataset.tasks import DatasetTask
from hipwright.measure.cost import FREE, base_name
from hipwright.records import TensorSpec
from hipwright.synth.describe import difficulty, family, main_dtype, reduction_axes


def task_fields(entry: DatasetTask, graph: Mapping[str, Any], inputs: Sequence[TensorSpec]) -> dict[str, Any]:
    """Fields of `Pair`: operators, families, dtype, composition, difficulty, licence."""
    names = [str(node["op"]) for node in graph["nodes"]]
    task = entry.synthetic
    if task is not None:
        known = {"operators": task.operators, "families": task.families, "dtype": task.dtype}
        return {**known, "difficulty": task.difficulty, "licence": task.licence, "composition": composition(names)}
    bare = [base_name(name) for name in names]
    return {
        "operators": tuple(dict.fromkeys(names)),
        "families": tuple(dict.fromkeys(filter(None, map(family, bare)))),
        "dtype": main_dtype(inputs),
        "difficulty": difficulty(bare, reduction_axes(graph), _outputs(graph["output"])),
        "licence": "",  # unknown for a plain file
        "composition": composition(names),
    }


def composition(operators: Sequence[str]) -> str:
    """The set of operators of a task without views, as sorted names joined by "+"."""
    return "+".join(sorted({name for one in operators if (name := base_name(one)) not in (*FREE, "getitem")}))


def _outputs(output: Any) -> int:
    from hipwright.capture.graph import references

    return len(list(references(output)))
