"""Who writes the programs of a run: the engine alone, or models beside it. The run's settings say all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hipwright import config
from hipwright.archive import Archive
from hipwright.errors import BadInput
from hipwright.events import Listener
from hipwright.records import Program, Run, Task
from hipwright.search import EngineSource, ProposalSource

if TYPE_CHECKING:
    from hipwright.agents.base import Tools
    from hipwright.engine.tuned import Tuned
    from hipwright.llm.call_log import CallLog, RecordedCallLog
    from hipwright.llm.client import Client

KEY = "agents"
"""The run setting that holds who writes, the models, the limits and what the archive knew when the run began."""

OPTIONS = {
    "specs": "--llm",
    "share": "--llm-share",
    "usd": "--max-usd",
    "tokens": "--max-tokens",
    "given_prices": "--price",
    "without": "--without",
}
"""What each part of the setting is called on the command line."""


@dataclass(frozen=True)
class ModelOptions:
    """What the command line said of models and roles; empty where it said nothing."""

    llm: tuple[str, ...] = ()
    share: float | None = None
    max_usd: float | None = None
    max_tokens: int | None = None
    price: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def settings(self) -> dict[str, Any]:
        """As a run keeps them; only what was said."""
        said = {
            "specs": list(self.llm),
            "share": self.share,
            "usd": self.max_usd,
            "tokens": self.max_tokens,
            "given_prices": list(self.price),
            "without": sorted(set(self.without)),
        }
        return {key: value for key, value in said.items() if value not in (None, [])}


def new_settings(
    asked: ModelOptions, archive: Archive, task: Task, targets: tuple[str, ...], tuned: Tuned | None = None
) -> dict[str, Any]:
    """The setting of a new run. BadInput for a model, a role or a price that cannot be used, before any work.

    tuned: what the tuning cache knows; it stays in the run's own record, so the run can be done again without it.
    """
    from hipwright.agents.pipeline import snapshot

    known = check(asked)
    if tuned is not None and "tuned" not in asked.without:
        known["tuned"] = {"device": tuned.device, "choices": tuned.choices}
    return {KEY: {**known, **snapshot(archive, task, targets, without=frozenset(asked.without))}}


def check(asked: ModelOptions) -> dict[str, Any]:
    """What of the setting needs no archive."""
    from hipwright.agents.base import ROLES, SWITCHES

    for name in asked.without:
        if name not in SWITCHES:
            raise BadInput(f"no role {name!r} to leave out", hint=f"roles: {', '.join(SWITCHES)}")
    settings = asked.settings()
    if not asked.llm:
        if any((asked.max_usd, asked.max_tokens, asked.price, asked.share)):
            raise BadInput("a limit or a price without a model", hint="name one: --llm PROVIDER:MODEL")
        return {"llm": False, **settings}
    from hipwright.llm.cost.prices import Prices, parse_prices, require_prices
    from hipwright.llm.models import check_model
    from hipwright.llm.specs import parse_specs

    lineup = parse_specs(asked.llm, ROLES)
    for member in lineup.members:
        check_model(member)
    prices = Prices(parse_prices(asked.price))
    require_prices(lineup.specs(), prices, limits(settings))
    return {"llm": True, **settings, "prices": prices.snapshot(lineup.specs())}


def limits(settings: Mapping[str, Any]) -> Any:
    """The run's `hipwright.llm.cost.budget.SpendingLimits`."""
    from hipwright.llm.cost.budget import SpendingLimits

    return SpendingLimits(usd=settings.get("usd"), tokens=settings.get("tokens"))


@contextmanager
def source(
    archive: Archive,
    run: Run,
    task: Task,
    engine: EngineSource,
    *,
    listener: Listener,
    recording: RecordedCallLog | None = None,
) -> Iterator[ProposalSource]:
    """The source of the run's proposals. recording: answers come from it alone, and nothing is sent anywhere."""
    settings = run.settings.get(KEY)
    if settings is None:  # a run begun before there were agents
        yield engine
        return
    from hipwright.agents.engine_author import EngineAuthor
    from hipwright.agents.pipeline import Pipeline, llm_screener

    mind = EngineAuthor(engine, settings, run.targets)
    if not settings.get("llm"):
        yield Pipeline(mind, None, settings)
        return
    from hipwright.agents.llm_author import LlmAuthor

    with _client(archive, run, settings, listener, recording) as client:
        tools = _tools(archive, run, task, settings, client)
        yield Pipeline(mind, LlmAuthor(tools), settings, llm_screener(tools))


def _client(
    archive: Archive, run: Run, settings: Mapping[str, Any], listener: Listener, recording: RecordedCallLog | None
) -> Client:
    from hipwright.llm.archive_call_log import ArchiveCallLog
    from hipwright.llm.client import Client
    from hipwright.llm.cost.budget import Budget
    from hipwright.llm.cost.prices import Prices
    from hipwright.llm.replay import Replay

    log: CallLog = ArchiveCallLog(archive, run.id)
    budget = Budget.resumed(limits(settings), log)
    if recording is not None:
        log = Replay(recording, log)
    prices = Prices.from_snapshot(settings["prices"])
    return Client(log, budget, listener=listener, prices=prices, outage_seconds=config.outage_seconds())


def _tools(archive: Archive, run: Run, task: Task, settings: Mapping[str, Any], client: Client) -> Tools:
    from hipwright.agents.base import ROLES, Tools
    from hipwright.llm.specs import parse_specs

    lineup = parse_specs(settings["specs"], ROLES)
    return Tools(
        client=client,
        lineup=lineup,
        task=task,
        graph_text=task.source,
        targets=run.targets,
        archive=archive,
        without=frozenset(settings.get("without", ())),
        llm_roles=frozenset(one.role for one in lineup.members if one.role),
    )


def recorded(archive: Archive, name: str) -> tuple[Run, RecordedCallLog | None]:
    """The run to do again, and its models' answers (None where none were asked).

    name: a run of the archive, or a file that `hipwright export` wrote. BadInput for neither.
    """
    path = Path(name)
    run = _exported_run(archive, path) if path.is_file() else archive.run(name)
    if not (run.settings.get(KEY) or {}).get("llm"):
        return run, None
    from hipwright.llm.replay import find_recording

    return run, find_recording(name if path.is_file() else run.id, archive)


def _exported_run(archive: Archive, path: Path) -> Run:
    """The run that an export begins with; the programs of earlier runs that it was shown enter the archive."""
    try:
        with path.open(encoding="utf-8") as stream:
            first = json.loads(stream.readline())
        for program in first.get("programs", ()):
            archive.put(Program.from_dict(program))
        return Run.from_dict(first["data"]["run"])
    except (OSError, ValueError, KeyError, TypeError, msgspec.ValidationError):
        hint = "`hipwright export RUN --out FILE` writes one; the canonical form cannot be replayed"
        raise BadInput(f"{path} is not the export of a run", hint=hint) from None


def models_of(archive: Archive, run: Run) -> dict[str, Any] | None:
    """What a run's models came to, as results show it; None for a run without."""
    if not (run.settings.get(KEY) or {}).get("llm"):
        return None
    from hipwright.llm.archive_call_log import ArchiveCallLog
    from hipwright.llm.cost.spending import spending

    return spending(ArchiveCallLog(archive, run.id)).to_dict()


def option_words(run: Run) -> list[str]:
    """The options that gave the run its setting, as words of a command line."""
    kept = run.settings.get(KEY) or {}
    values = [(option, kept[key]) for key, option in OPTIONS.items() if key in kept]
    return [word for option, value in values for one in _each(value) for word in (option, str(one))]


def _each(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
