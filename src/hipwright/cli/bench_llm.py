"""A model under measurement in `bench`: its samples are asked for, read, and handed on as candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hipwright import config
from hipwright.errors import BadInput, HipwrightError, OutOfBudget
from hipwright.evaluation.bench import BenchRow, ModelSample, failed_row, malformed_row

if TYPE_CHECKING:
    from hipwright.agents.sampler import SampleRequest, SampleResult
    from hipwright.archive import Archive
    from hipwright.cli.benching import BenchEntry
    from hipwright.llm.call_log import CallLog
    from hipwright.llm.client import Client
    from hipwright.llm.cost.budget import SpendingLimits
    from hipwright.llm.cost.prices import Prices
    from hipwright.llm.specs import Lineup
    from hipwright.records import Task
    from hipwright.sandbox import Zygote
    from hipwright.task import TaskHandle

CALLS = "calls.jsonl"
NOT_ASKED = "not asked"
"""What a row has for an answer where a limit in dollars or tokens kept it from being asked for."""

Agent = Literal["single-shot", "pipeline"]
Form = Literal["program", "modelnew"]


@dataclass(frozen=True)
class Models:
    """Which models are measured, and how. replay: a recording that answers in the providers' place."""

    lineup: Lineup
    samples: int
    agent: Agent
    form: Form
    limits: SpendingLimits
    prices: Prices
    temperature: float | None
    replay: Path | None

    @property
    def settings(self) -> str:
        """What decides a sample besides its model, for a row's key."""
        return f"{self.agent} {self.form} temperature {self.temperature}"

    def model(self, seed: int | None, task: str, number: int) -> str:
        """The model of one sample; of the pipeline, whose roles may have several, all of them."""
        from hipwright.agents.sampler import sample_model

        if self.agent == "pipeline":
            return " ".join(self.lineup.specs())
        return sample_model(self.lineup, seed or 0, task, number)


def models(
    specs: Sequence[str],
    *,
    samples: int,
    agent: Agent,
    form: Form,
    max_usd: float | None,
    max_tokens: int | None,
    prices: Sequence[str],
    temperature: float | None,
    replay: Path | None,
) -> Models:
    """What the options say. Raises BadInput."""
    from hipwright.agents.base import ROLES
    from hipwright.llm.cost.budget import SpendingLimits
    from hipwright.llm.cost.prices import Prices, parse_prices, require_prices
    from hipwright.llm.specs import parse_specs

    if form == "modelnew" and agent == "pipeline":
        raise BadInput("the pipeline writes programs, not ModelNew files", hint="leave --form out, or --agent")
    if replay is not None and not replay.is_file():
        raise BadInput(f"no such recording: {replay}", hint="calls.jsonl in the --out of an earlier benchmark is one")
    lineup, limits = parse_specs(specs, ROLES), SpendingLimits(usd=max_usd, tokens=max_tokens)
    known = Prices(parse_prices(prices))
    require_prices([one.name for one in lineup.members], known, limits)
    return Models(lineup, samples, agent, form, limits, known, temperature, replay)


@dataclass
class ModelConnection:
    """An open line to the models: the client and the log behind it."""

    client: Client
    log: CallLog


@contextmanager
def open_line(
    wanted: Models, out: Path | None, listener: Callable[[str, dict[str, Any]], None]
) -> Iterator[ModelConnection]:
    """A client whose calls are kept in out/calls.jsonl, or in memory without a folder."""
    from hipwright.llm.call_log import MemoryCallLog
    from hipwright.llm.client import Client
    from hipwright.llm.cost.budget import Budget
    from hipwright.llm.file_call_log import FileCallLog
    from hipwright.llm.replay import Replay, read_recording

    with ExitStack() as stack:
        # read before it may be appended to: a recording may be this very file
        recording = read_recording(wanted.replay) if wanted.replay is not None else None
        kept = stack.enter_context(FileCallLog(out / CALLS)) if out is not None else MemoryCallLog()
        log: CallLog = Replay(recording, then=kept) if recording is not None else kept
        budget = Budget.resumed(wanted.limits, kept)
        client = Client(log, budget, prices=wanted.prices, listener=listener, outage_seconds=config.outage_seconds())
        stack.enter_context(client)
        yield ModelConnection(client, log)


def draw(
    wanted: Models,
    line: ModelConnection,
    host: Zygote,
    archive: Archive,
    entries: Sequence[BenchEntry],
    *,
    targets: Sequence[str],
    workers: int,
) -> Iterator[tuple[BenchEntry, BenchRow | None]]:
    """Each entry with its program, or with the row that it already is: no program in the answer, or no answer."""
    from hipwright.agents.sampler import SampleRequest
    from hipwright.agents.sampler import draw as ask

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
            ask,
            line.client,
            line.log,
            samples,
            _prompt(wanted, targets, archive),
            form=wanted.form,
            temperature=wanted.temperature,
        )
        try:
            drawn = asked.result()
        except BaseException:  # an interrupt: the calls under way end at once, and are lost
            line.client.close()
            raise
    yield from (_told(entry, one) for entry, one in zip(asking, drawn, strict=True))


def _prompt(wanted: Models, targets: Sequence[str], archive: Archive) -> Any:
    from hipwright.agents.sampler import modelnew_prompt, program_prompt

    if wanted.form == "modelnew":
        return modelnew_prompt(targets)
    return program_prompt(targets, archive)


def keep_program(out: Path | None, entry: BenchEntry) -> None:
    """The sample as a file, below the name of its task: programs/TASK/sample_N.py."""
    from hipwright.api.files import write_file

    if out is not None and entry.program is not None:
        path = out / "programs" / entry.task.name / f"sample_{entry.sample}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, entry.program.text)


def _told(entry: BenchEntry, one: SampleResult) -> tuple[BenchEntry, BenchRow | None]:
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
    """The tasks, opened once to know their workloads, or what kept each from opening."""
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
