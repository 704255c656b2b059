"""SOL-ExecBench's layout: a folder a problem, with definition.json and workload.jsonl."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from hipwright.evaluation.formats.base import BenchTask, CandidateFile, FormatRule, TaskFormat, marked
from hipwright.evaluation.formats.definitions import Definition, Tolerance, TraceWorkload, WorkloadLine, task_text
from hipwright.evaluation.formats.kernelbench import natural
from hipwright.evaluation.formats.read import Malformed, below, decoded, guarded, json_record, plain_name, text_of
from hipwright.evaluation.formats.solutions import solutions

DEPTH = 3
"""Folders below the given one in which problems are looked for, as in DIR/data/L1/PROBLEM."""


class SolExecBenchFormat(TaskFormat):
    """The loader of SOL-ExecBench's problem folders. A task's category is the folder of its problem (L1, ...)."""

    name = "sol-execbench"
    title = "SOL-ExecBench"
    layout = "PROBLEM/definition.json, PROBLEM/workload.jsonl"
    no_training = "its problems are under NVIDIA's evaluation data set licence (nvidia-evaluation-dataset-license)"
    rule = FormatRule(
        tolerance="a workload's own: max_atol 1e-2, max_rtol 1e-2, 99 % of elements within them, by default",
        timing="latency of each workload on a B200 beside its analytical bound (SOL score)",
        source="https://github.com/NVIDIA/SOL-ExecBench/tree/main/docs",
        atol=1e-2,
        rtol=1e-2,
        matched=0.99,
    )

    def detect(self, folder: Path) -> bool:
        """Whether a folder with definition.json has workload.jsonl too."""
        return any((path.parent / "workload.jsonl").is_file() for path in _definitions(folder))

    def load(self, folder: Path) -> Iterable[BenchTask]:
        """The problems, named by their folders."""
        for path in _definitions(folder):
            problem = path.parent
            name = below(problem, folder) if problem != folder else folder.resolve().name
            category = problem.parent.name if problem.parent != folder and problem != folder else ""
            made = partial(self._task, folder, path, name, category)
            yield guarded(made, name, path, category=category, rule=self.rule)

    def answers(self, folder: Path, tasks: Sequence[BenchTask]) -> Iterable[CandidateFile]:
        """The solutions below the folder."""
        mine = {_definition(task).name: task for task in tasks if task.text is not None}
        paths = sorted(path for path in folder.rglob("*.json") if path.name != "definition.json")
        yield from solutions(folder, paths, mine, _definition)

    def _task(self, root: Path, path: Path, name: str, category: str) -> BenchTask:
        found, where = json_record(path, root, Definition), below(path, root)
        plain_name(found.name, f"{where}: name")
        workloads = list(_workloads(path.with_name("workload.jsonl"), root))
        text, notes = task_text(found, workloads, path.parent, where)
        rule = _rule(self.rule, [one.tolerance for one in workloads if one.tolerance is not None])
        group = category or found.op_type
        text = marked(text, self.no_training)
        return BenchTask(name, path, category=group, text=text, notes=tuple(notes), rule=rule)


SOL_EXECBENCH = SolExecBenchFormat()


def _definitions(folder: Path) -> list[Path]:
    places = ["/".join(["*"] * depth + ["definition.json"]) for depth in range(DEPTH + 1)]
    found = [path for place in places for path in folder.glob(place) if path.is_file()]
    return sorted(found, key=lambda path: natural(path.as_posix()))


def _definition(task: BenchTask) -> Definition:
    return json_record(task.path, task.path.parent, Definition)


def _workloads(path: Path, root: Path) -> Iterable[TraceWorkload]:
    """The workloads of a file: bare ones, or lines that name their definition too."""
    for number, line in enumerate(text_of(path, root).splitlines(), 1):
        where = f"{below(path, root)} line {number}"
        if not line.strip():
            continue
        try:
            yield decoded(line, TraceWorkload, where)
        except Malformed as error:
            try:
                yield decoded(line, WorkloadLine, where).workload
            except Malformed as other:
                raise (other if '"workload"' in line else error) from None


def _rule(rule: FormatRule, given: list[Tolerance]) -> FormatRule:
    """The rule with the widest tolerance of the workloads."""
    if not given:
        return rule
    atol, rtol = max(one.max_atol for one in given), max(one.max_rtol for one in given)
    matched = min(one.required_matched_ratio for one in given)
    words = f"the workloads': max_atol {atol:g}, max_rtol {rtol:g}, {100 * matched:g} % of elements within them"
    return msgspec.structs.replace(rule, tolerance=words, atol=atol, rtol=rtol, matched=matched)
