"""flashinfer-trace's layout: definitions/**/*.json, workloads/OP_TYPE/DEFINITION.jsonl, solutions/**/*.json, blob/."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from hipwright.evaluation.formats.base import BenchTask, CandidateFile, FormatRule, TaskFormat
from hipwright.evaluation.formats.definitions import Definition, TraceWorkload, WorkloadLine, task_text
from hipwright.evaluation.formats.read import Malformed, below, guarded, json_lines, json_record, plain_name
from hipwright.evaluation.formats.solutions import solutions


class FlashinferTraceFormat(TaskFormat):
    """The loader of flashinfer-trace's folders. A task's category is its op_type."""

    name = "flashinfer-trace"
    title = "flashinfer-trace"
    layout = "definitions/**/*.json, workloads/**/*.jsonl"
    no_training = ""
    rule = FormatRule(
        tolerance="allclose with the reference's output, atol and rtol 1e-2 unless the run sets others",
        timing="median latency of a workload against the reference's; a solution's speedup_factor by workload",
        source="https://github.com/flashinfer-ai/flashinfer-bench/tree/main/docs/flashinfer_trace",
        atol=1e-2,
        rtol=1e-2,
    )

    def detect(self, folder: Path) -> bool:
        """Whether there is definitions/**/*.json."""
        return next((folder / "definitions").rglob("*.json"), None) is not None

    def load(self, folder: Path) -> Iterable[BenchTask]:
        """The definitions, named OP_TYPE/DEFINITION."""
        workloads, broken = _workloads(folder)
        for path in sorted((folder / "definitions").rglob("*.json")):
            family = path.parent.name if path.parent != folder / "definitions" else ""
            name = f"{family}/{path.stem}" if family else path.stem
            made = partial(self._task, folder, path, name, workloads, broken)
            yield guarded(made, name, path, category=family, rule=self.rule)

    def answers(self, folder: Path, tasks: Sequence[BenchTask]) -> Iterable[CandidateFile]:
        """The solutions below the folder, or below its `solutions`."""
        place = folder / "solutions" if (folder / "solutions").is_dir() else folder
        mine = {task.path.stem: task for task in tasks if task.text is not None}
        yield from solutions(folder, sorted(place.rglob("*.json")), mine, _definition)

    def _task(
        self, root: Path, path: Path, name: str, workloads: dict[str, list[TraceWorkload]], broken: dict[str, str]
    ) -> BenchTask:
        found = json_record(path, root, Definition)
        where = below(path, root)
        plain_name(found.name, f"{where}: name")
        if not found.op_type:
            raise Malformed(f"{where}: op_type: missing")
        if path.stem in broken or found.name in broken:
            raise Malformed(broken.get(found.name, broken.get(path.stem, "")))
        text, notes = task_text(found, workloads.get(found.name, []), root, where)
        return BenchTask(name, path, category=found.op_type, text=text, notes=tuple(notes), rule=self.rule)


FLASHINFER_TRACE = FlashinferTraceFormat()


def _definition(task: BenchTask) -> Definition:
    return json_record(task.path, task.path.parent, Definition)


def _workloads(root: Path) -> tuple[dict[str, list[TraceWorkload]], dict[str, str]]:
    """({definition: its workloads}, {a file's stem: why it cannot be read})."""
    found: dict[str, list[TraceWorkload]] = defaultdict(list)
    broken: dict[str, str] = {}
    for path in sorted((root / "workloads").rglob("*.jsonl")):
        try:
            for line in json_lines(path, root, WorkloadLine):
                found[line.definition].append(line.workload)
        except Malformed as error:
            broken[path.stem] = str(error)
    return found, broken
