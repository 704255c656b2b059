"""Samples of measured language models: asks for them, reads them, and makes them the candidates of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from hipwright.api.bench.models import MeasuredModels
from hipwright.api.bench.plan import BenchEntry
from hipwright.api.bench.tasks import task_input
from hipwright.api.model_access import LoggedClient
from hipwright.errors import HipwrightError, OutOfBudget
from hipwright.evaluation.bench import BenchRow, ModelSample, failed_row, malformed_row
from hipwright.evaluation.formats.base import BenchTask
from hipwright.machine import open_handle

if TYPE_CHECKING:
    from hipwright.agents.sampler import SampleRequest, SampleResult
    from hipwright.archive import Archive
    from hipwright.records import Task
    from hipwright.sandbox import Zygote

NOT_ASKED = "not asked"
"""A row's answer where a limit in dollars or tokens prevented the call."""


def draw_samples(
    models: MeasuredModels,
    logged: LoggedClient,
    host: Zygote,
    archive: Archive,
    entries: Sequence[BenchEntry],
    *,
    targets: Sequence[str],
    workers: int,
) -> Iterator[tuple[BenchEntry, BenchRow | None]]:
    """Each entry with its program, or with its row where there is no program or no answer."""
    from hipwright.agents.sampler import SampleRequest, draw

    opened = _tasks(host, entries, workers)
    samples: list[SampleRequest] = []
    asking: list[BenchEntry] = []
    for entry in entries:
        task = opened[entry.task.name]
        if isinstance(task, HipwrightError):
            yield entry, failed_row(task, **entry.names, asked=ModelSample(model=entry.candidate))
        else:
            samples.append(SampleRequest(task, entry.sample, entry.candidate))
            asking.append(entry)
    with ThreadPoolExecutor(max_workers=1) as pool:
        asked = pool.submit(
            draw,
            logged.client,
            logged.log,
            samples,
            _prompt(models, targets, archive),
            form=models.form,
            temperature=models.temperature,
        )
        try:
            drawn = asked.result()
        except BaseException:  # on an interrupt the current calls end at once, and are lost
            logged.client.close()
            raise
    yield from (_answered(entry, one) for entry, one in zip(asking, drawn, strict=True))


def _prompt(models: MeasuredModels, targets: Sequence[str], archive: Archive) -> Any:
    from hipwright.agents.sampler import modelnew_prompt, program_prompt

    if models.form == "modelnew":
        return modelnew_prompt(targets)
    return program_prompt(targets, archive)


def _answered(entry: BenchEntry, one: SampleResult) -> tuple[BenchEntry, BenchRow | None]:
    """The entry with the answer's program, or with its row where there is none."""
    if isinstance(one.error, OutOfBudget):
        asked = msgspec.structs.replace(one.asked, answer=NOT_ASKED)
        return entry, failed_row(one.error, **entry.names, asked=asked)
    entry = replace(entry, program=one.program, asked=one.asked)
    if one.error is not None:
        return entry, failed_row(one.error, **entry.names, asked=one.asked)
    if one.program is None:
        return entry, malformed_row(f"{one.asked.answer}: {one.message}", **entry.names, asked=one.asked)
    return entry, None


def _tasks(host: Zygote, entries: Sequence[BenchEntry], workers: int) -> dict[str, Task | HipwrightError]:
    """The tasks with their workloads, each opened once, or the error of opening it."""
    files = {entry.task.name: entry.task for entry in entries}

    def one(task: BenchTask) -> Task | HipwrightError:
        try:
            with open_handle(task_input(task), host) as handle:
                return handle.task
        except HipwrightError as error:
            return error

    with ThreadPoolExecutor(max_workers=workers) as pool:
        return dict(zip(files, pool.map(one, files.values()), strict=True))
