"""Judges honest programs: every case of a task, run in other orders of summation, by the verifier's own rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.honest.orders import Reordered
from hipwright.sandbox import Zygote
from hipwright.task import open_source
from hipwright.task.host import state as states
from hipwright.task.host.load import TaskModule
from hipwright.task.host.reference import ReferenceModel
from hipwright.tensors import Tree
from hipwright.torchio import from_torch, tree_from_torch, tree_to_torch
from hipwright.verify import Oracle
from hipwright.verify.compare import compare
from hipwright.verify.oracle import VerificationCase

EVERY_FAMILY = 1 << 21
"""Elements of inputs and parameters up to which all families run at a task's own shapes too."""


@dataclass
class HonestPair:
    """A task in one order. cases: how many were judged. refused: (case, the largest error over its budget, message)."""

    task: str
    order: str
    seed: int
    cases: int = 0
    refused: list[tuple[str, float, str]] = field(default_factory=list)
    worst: float = 0.0


def judge(name: str, text: str, orders: tuple[str, ...], seed: int, zygote: Zygote) -> list[HonestPair]:
    """One pair for each order of a task file. The programs are ours, so they run in this process, on one thread."""
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # one operator for a whole layer, whose sums nobody can reorder
    pairs = [HonestPair(name, order, seed) for order in orders]
    with open_source(name, text, zygote) as handle:
        model = ReferenceModel(TaskModule(f"{name}.py", text))
        for case in cases(Oracle(handle, seed=seed)):
            for pair in pairs:
                _note(pair, case, _result(model, case, Reordered(pair.order, seed)))
    return pairs


def judge_ways(
    name: str, text: str, ways: Mapping[str, Callable[..., Any]], seed: int, zygote: Zygote
) -> list[HonestPair]:
    """One pair for each way to compute a task: way(model, *inputs) gives what the task's forward gives."""
    torch.set_num_threads(1)
    pairs = [HonestPair(name, way, seed) for way in ways]
    with open_source(name, text, zygote) as handle:
        reference = ReferenceModel(TaskModule(f"{name}.py", text))
        for case in cases(Oracle(handle, seed=seed)):
            model, args = reference.model(case.state), tree_to_torch(case.inputs)
            for pair, way in zip(pairs, ways.values(), strict=True):
                with torch.no_grad():
                    result = {"outputs": tree_from_torch(way(model, *args)), "buffers": {}}
                _note(pair, case, result)
    return pairs


def _note(pair: HonestPair, case: VerificationCase, result: Tree) -> None:
    """Compares a result and adds what was found to the pair."""
    found = compare(result, case.expected)
    pair.cases += 1
    pair.worst = max(pair.worst, found.worst_error)
    if not found.ok:
        pair.refused.append((case.name, found.worst_error, found.message))


def cases(oracle: Oracle) -> Iterator[VerificationCase]:
    """What a full verification judges, and all families at the task's own shapes, where they are small enough."""
    for planned in oracle.planned():
        name = planned.workload.name
        families = oracle.families(name)
        for family in families if planned.role != "unseen" else families[:2]:
            case = oracle.case(name, family)
            if not case.rejected:
                yield case


def _result(reference: ReferenceModel, case: VerificationCase, mode: Any) -> Tree:
    model, args = reference.model(case.state), tree_to_torch(case.inputs)
    known = set(case.state["buffers"])
    with torch.no_grad(), mode:
        result = model(*args)
    held = {path: from_torch(tensor, {}) for path, tensor in states.buffers(model) if path in known}
    return {"outputs": tree_from_torch(result), "buffers": held}
