"""Language models under measurement: their samples are asked for, read, and become the candidates of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hipwright.api.connection import ModelAccess, ModelConnection, model_access
from hipwright.errors import BadInput, HipwrightError, OutOfBudget
from hipwright.evaluation.bench import BenchRow, ModelSample, failed_row, malformed_row

if TYPE_CHECKING:
    from hipwright.agents.sampler import SampleRequest, SampleResult
    from hipwright.api.bench.plan import BenchEntry
    from hipwright.archive import Archive
    from hipwright.records import Task
    from hipwright.sandbox import Zygote
    from hipwright.task import TaskHandle

NOT_ASKED = "not asked"
"""A row's answer where a limit in dollars or tokens kept the sample from being asked for."""

Agent = Literal["single-shot", "pipeline"]
AnswerForm = Literal["program", "modelnew"]


@dataclass(frozen=True)
class MeasuredModels:
    """The models that a benchmark measures. samples: of each task. agent: one call a sample, or a search of all roles.

    form: what they are asked to write. temperature: of every call; the provider's default for None.
    """

    access: ModelAccess
    samples: int = 1
    agent: Agent = "single-shot"
    form: AnswerForm = "program"
    temperature: float | None = None

    @property
    def settings(self) -> str:
        """What decides a sample besides its model, for a row's key."""
        return f"{self.agent} {self.form} temperature {self.temperature}"

    def model(self, seed: int | None, task: str, number: int) -> str:
        """The model of one sample; of the pipeline, whose roles may have several, all of them."""
        from hipwright.agents.sampler import sample_model

        lineup = self.access.lineup
        if self.agent == "pipeline":
            return " ".join(lineup.specs())
        return sample_model(lineup, seed or 0, task, number)


def measured_models(
    specs: Sequence[str],
    *,
    samples: int = 1,
    agent: Agent = "single-shot",
    form: AnswerForm = "program",
    max_usd: float | None = None,
    max_tokens: int | None = None,
    prices: Sequence[str] = (),
    temperature: float | None = None,
    replay: Path | None = None,
) -> MeasuredModels:
    """The models that specs name, and how they are asked. BadInput for options that cannot be used together."""
    if form == "modelnew" and agent == "pipeline":
        raise BadInput("the pipeline writes programs, not ModelNew files", hint="leave --form out, or --agent")
    access = model_access(specs, max_usd=max_usd, max_tokens=max_tokens, prices=prices, replay=replay)
    return MeasuredModels(access, samples, agent, form, temperature)


def draw_samples(
    models: MeasuredModels,
    connection: ModelConnection,
    host: Zygote,
    archive: Archive,
    entries: Sequence[BenchEntry],
    *,
    targets: Sequence[str],
    workers: int,
) -> Iterator[tuple[BenchEntry, BenchRow | None]]:
    """Each entry with its program, or with its row where no program came: none in the answer, or no answer."""
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
            connection.client,
            connection.log,
            samples,
            _prompt(models, targets, archive),
            form=models.form,
            temperature=models.temperature,
        )
        try:
            drawn = asked.result()
        except BaseException:  # an interrupt: the calls under way end at once, and are lost
            connection.client.close()
            raise
    yield from (_answered(entry, one) for entry, one in zip(asking, drawn, strict=True))


def _prompt(models: MeasuredModels, targets: Sequence[str], archive: Archive) -> Any:
    from hipwright.agents.sampler import modelnew_prompt, program_prompt

    if models.form == "modelnew":
        return modelnew_prompt(targets)
    return program_prompt(targets, archive)


def _answered(entry: BenchEntry, one: SampleResult) -> tuple[BenchEntry, BenchRow | None]:
    """The entry with the answer's program, or with the row that the answer already is."""
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
    """The tasks with their workloads, each opened once, or the error that kept one from opening."""
    files = {entry.task.name: entry.task.path for entry in entries}

    def one(path: Path) -> Task | HipwrightError:
        from hipwright.task import open_task

        try:
            handle: TaskHandle
            with open_task(path, host) as handle:
                return handle.task
        except HipwrightError as error:
            return error

    with ThreadPoolExecutor(max_workers=workers) as pool:
        return dict(zip(files, pool.map(one, files.values()), strict=True))
