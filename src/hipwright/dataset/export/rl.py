"""The `trl` and `verl` formats: prompts with ground truth for reinforcement learning, one row a task.

The ground truth is the reference, against which a reward function verifies an answer. `best_estimate_us` is the lowest
static estimate of a verified program of the task, not a measured time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hipwright.dataset.export.chat import (
    MESSAGES,
    PROMPT_COMPLETION_COLUMNS,
    TASK_COLUMNS,
    ChatRows,
    fresh_prompt,
    task_facts,
)
from hipwright.dataset.export.format import Columns, ExportOptions, ExportSummary, ExportTable, split_name
from hipwright.dataset.export.grouping import by_task
from hipwright.dataset.export.job import ExportFormat, ExportJob
from hipwright.dataset.export.parquet import ParquetFile, ParquetShards
from hipwright.dataset.export.rows import estimate_rows
from hipwright.dataset.export.writing import write
from hipwright.dataset.records import Pair

SOURCE, ABILITY = "hipwright", "hip-kernel"
"""verl selects the reward function by the first; the second is a label."""

_RESULT_COLUMNS: Columns = {
    "verified_programs": "int64",
    "best_estimate_us": [{"target": "string", "microseconds": "float64"}],
    "licence": "string",
}
GRPO: Columns = {"prompt": MESSAGES["messages"], "ground_truth": "string", **TASK_COLUMNS, **_RESULT_COLUMNS}
VERL: Columns = {
    "data_source": "string",
    "prompt": MESSAGES["messages"],
    "ability": "string",
    "reward_model": {"style": "string", "ground_truth": "string"},
    "extra_info": {"split": "string", "index": "int64", **TASK_COLUMNS, **_RESULT_COLUMNS},
}


def _task(pairs: Sequence[Pair], options: ExportOptions) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """(the prompt of a task, its further columns)."""
    right = [pair for pair in pairs if pair.correct]
    best: dict[str, float] = {}
    for pair in right:
        for target, value in pair.estimate_us.items():
            best[target] = min(value, best.get(target, value))
    columns = {
        "verified_programs": len({pair.program.key for pair in right}),
        "best_estimate_us": estimate_rows(best),
        "licence": pairs[0].licence,
    }
    return fresh_prompt(pairs[0], options), {**task_facts(pairs[0]), **columns}


def _fill_trl(pairs: Iterator[Pair], job: ExportJob) -> None:
    chat_rows = ChatRows(job.options)
    for group in by_task(pairs, job.folder):
        job.put_each(group, chat_rows, table="sft")
        messages, columns = _task(group, job.options)
        job.put(group[0].split, {"prompt": messages, "ground_truth": group[0].task_source, **columns}, table="grpo")


def _fill_verl(pairs: Iterator[Pair], job: ExportJob) -> None:
    for index, group in enumerate(by_task(pairs, job.folder)):
        messages, columns = _task(group, job.options)
        row = {
            "data_source": SOURCE,
            "prompt": messages,
            "ability": ABILITY,
            "reward_model": {"style": "rule", "ground_truth": group[0].task_source},
            "extra_info": {"split": split_name(group[0].split), "index": index, **columns},
        }
        job.put(group[0].split, row)


TRL = ExportFormat(
    name="trl",
    tables=(ExportTable(GRPO, "grpo", "grpo"), ExportTable(PROMPT_COMPLETION_COLUMNS, "sft", "sft")),
    opener=ParquetShards,
    fill=_fill_trl,
    about="Two tables for TRL. `sft`: a conversational `prompt` and its `completion`, a verified program. `grpo`: one "
    "`prompt` a task; the other columns reach a reward function by name, `ground_truth` with the reference's source.",
)
VERL_FORM = ExportFormat(
    name="verl",
    tables=(ExportTable(VERL),),
    opener=ParquetFile,
    fill=_fill_verl,
    about="One row a task in verl's columns. `reward_model.ground_truth` is the reference's source, which the reward "
    "function gets with the answer; `data_source` is `hipwright`.",
)


def export_trl(pairs: Iterable[Pair], out: Path, options: ExportOptions) -> ExportSummary:
    """Prompt and completion for SFT, prompt and ground truth for GRPO."""
    return write(TRL, pairs, out, options)


def export_verl(pairs: Iterable[Pair], out: Path, options: ExportOptions) -> ExportSummary:
    """Prompt and ground truth in verl's columns."""
    return write(VERL_FORM, pairs, out, options)
