"""The authors of a run: the engine alone, or with language models, as the run's settings record them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
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
from hipwright.search.start import SETTING as START_SETTING
from hipwright.search.start import started

if TYPE_CHECKING:
    from hipwright.agents.base import Tools
    from hipwright.engine.tuned import Tuned
    from hipwright.llm.call_log import CallLog, RecordedCallLog
    from hipwright.llm.client import Client
    from hipwright.llm.cost.budget import SpendingLimits

SETTING = "agents"
"""The run setting with the authors, the limits and the archive's contents at the start of the run."""

OPTIONS = {
    "specs": "--llm",
    "share": "--llm-share",
    "usd": "--max-usd",
    "tokens": "--max-tokens",
    "given_prices": "--price",
    "without": "--without",
    "away": "--models-away",
}
"""The command line's option for each part of the setting."""


WITHOUT_ANSWER = ("engine", "pause")
"""What a run does where a model gives no answer: the engine goes on, or the run pauses."""

PATIENCE_S = 60.0
"""How long at most a model may fail every call before the engine goes on without it."""


@dataclass(frozen=True)
class ModelOptions:
    """Models, limits and roles as the caller gave them; empty or None where nothing was given."""

    llm: tuple[str, ...] = ()
    share: float | None = None
    max_usd: float | None = None
    max_tokens: int | None = None
    price: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    away: str | None = None

    @classmethod
    def of(
        cls,
        llm: str | Iterable[str] | None,
        share: float | None = None,
        max_usd: float | None = None,
        max_tokens: int | None = None,
        price: Iterable[str] | None = None,
        without: Iterable[str] | None = None,
        away: str | None = None,
    ) -> ModelOptions:
        """Options from optional values; llm: one spec or several."""
        specs = (llm,) if isinstance(llm, str) else tuple(llm or ())
        return cls(specs, share, max_usd, max_tokens, tuple(price or ()), tuple(without or ()), away)

    def settings(self) -> dict[str, Any]:
        """The given options in the form of the run's setting."""
        given = {
            "specs": list(self.llm),
            "share": self.share,
            "usd": self.max_usd,
            "tokens": self.max_tokens,
            "given_prices": list(self.price),
            "without": sorted(set(self.without)),
            "away": self.away,
        }
        return {key: value for key, value in given.items() if value not in (None, [])}


def run_settings(
    asked: ModelOptions, archive: Archive, task: Task, targets: tuple[str, ...], tuned: Tuned | None = None
) -> dict[str, Any]:
    """The settings of a new run. Raises BadInput for an unusable model, role or price before any work.

    tuned: choices from the tuning cache; the run records them, so it can be repeated without the cache.
    """
    from hipwright.agents.pipeline import snapshot

    known = check_options(asked)
    if known["llm"]:
        known.setdefault("away", WITHOUT_ANSWER[0])
    if tuned is not None and "tuned" not in asked.without:
        known["tuned"] = {"device": tuned.device, "choices": tuned.choices}
    return {SETTING: {**known, **snapshot(archive, task, targets, without=frozenset(asked.without))}}


def check_options(asked: ModelOptions) -> dict[str, Any]:
    """The part of the settings that does not depend on the archive. Raises BadInput as `run_settings` does."""
    from hipwright.agents.base import ROLES, SWITCHES

    for name in asked.without:
        if name not in SWITCHES:
            raise BadInput(f"no role {name!r} to leave out", hint=f"roles: {', '.join(SWITCHES)}")
    settings = asked.settings()
    if asked.away not in (None, *WITHOUT_ANSWER):
        raise BadInput(f"--models-away is {' or '.join(WITHOUT_ANSWER)}, not {asked.away!r}")
    if not asked.llm:
        if any((asked.max_usd, asked.max_tokens, asked.price, asked.share, asked.away)):
            hint = "name one: --llm PROVIDER:MODEL"
            raise BadInput("a limit, a price or another option of models without a model", hint=hint)
        return {"llm": False, **settings}
    from hipwright.llm.cost.prices import Prices, parse_prices, require_prices
    from hipwright.llm.models import check_model
    from hipwright.llm.specs import parse_specs

    lineup = parse_specs(asked.llm, ROLES)
    for member in lineup.members:
        check_model(member)
    prices = Prices(parse_prices(asked.price))
    require_prices(lineup.specs(), prices, spending_limits(settings))
    return {"llm": True, **settings, "prices": prices.snapshot(lineup.specs())}


def spending_limits(settings: Mapping[str, Any]) -> SpendingLimits:
    """The run's limits in dollars and tokens."""
    from hipwright.llm.cost.budget import SpendingLimits

    return SpendingLimits(usd=settings.get("usd"), tokens=settings.get("tokens"))


@contextmanager
def proposal_source(
    archive: Archive,
    run: Run,
    task: Task,
    engine: EngineSource,
    *,
    listener: Listener,
    recording: RecordedCallLog | None = None,
) -> Iterator[ProposalSource]:
    """The source of the run's proposals. recording: a recorded run whose answers are used; then no model is asked."""
    setting = run.settings.get(START_SETTING) or {}
    program = archive.program(setting["program"]) if setting.get("program") else None
    with _authors(archive, run, task, engine, listener, recording) as authors:
        yield started(authors, setting, program)


@contextmanager
def _authors(
    archive: Archive,
    run: Run,
    task: Task,
    engine: EngineSource,
    listener: Listener,
    recording: RecordedCallLog | None,
) -> Iterator[ProposalSource]:
    """The engine and the models, without the run's start."""
    settings = run.settings.get(SETTING)
    if settings is None:  # a run of a version without agents
        yield engine
        return
    from hipwright.agents.engine_author import EngineAuthor
    from hipwright.agents.pipeline import Pipeline, llm_screener

    author = EngineAuthor(engine, settings, run.targets)
    if not settings.get("llm"):
        yield Pipeline(author, None, settings)
        return
    from hipwright.agents.llm_author import LlmAuthor

    with _client(archive, run, settings, listener, recording) as client:
        tools = _tools(archive, run, task, settings, client)
        if recording is None:
            _say_what_is_silent(settings, listener)
        yield Pipeline(author, LlmAuthor(tools), settings, llm_screener(tools))


def _say_what_is_silent(settings: Mapping[str, Any], listener: Listener) -> None:
    """Tells the listener which servers of one's own do not answer; the run begins all the same."""
    from hipwright.agents.base import ROLES
    from hipwright.agents.pipeline import goes_on
    from hipwright.llm.preflight import silent_servers
    from hipwright.llm.specs import parse_specs

    for address, why in silent_servers(parse_specs(settings["specs"], ROLES).members):
        away = f"nothing answers at {address} ({why}): start the server, or stop this run"
        seconds = _patience(settings)
        then = "the engine goes on without it" if goes_on(settings) else "the run pauses"
        asked = f"it is asked for {seconds:g} s before {then}; the engine begins"
        listener("stage", {"text": f"{away}; {asked}"})


def _client(
    archive: Archive, run: Run, settings: Mapping[str, Any], listener: Listener, recording: RecordedCallLog | None
) -> Client:
    from hipwright.agents.pipeline import goes_on
    from hipwright.llm.archive_call_log import ArchiveCallLog
    from hipwright.llm.client import Client
    from hipwright.llm.cost.budget import Budget
    from hipwright.llm.cost.prices import Prices
    from hipwright.llm.replay import Replay

    log: CallLog = ArchiveCallLog(archive, run.id)
    budget = Budget.resumed(spending_limits(settings), log)
    if recording is not None:
        log = Replay(recording, log)
    prices = Prices.from_snapshot(settings["prices"])
    seconds, pauses = _patience(settings), not goes_on(settings)
    return Client(log, budget, listener=listener, prices=prices, outage_seconds=seconds, pauses=pauses)


def _patience(settings: Mapping[str, Any]) -> float:
    """Seconds that a model may fail all its calls."""
    from hipwright.agents.pipeline import goes_on

    longest = config.outage_seconds()
    return min(longest, PATIENCE_S) if goes_on(settings) else longest


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


def recorded_run(archive: Archive, name: str) -> tuple[Run, RecordedCallLog | None]:
    """The run to repeat, and its models' answers (None for a run without models).

    name: a run of the archive, or a file that `hipwright export` wrote. Raises BadInput for neither.
    """
    path = Path(name)
    run = _exported_run(archive, path) if path.is_file() else archive.run(name)
    if not (run.settings.get(SETTING) or {}).get("llm"):
        return run, None
    from hipwright.llm.replay import find_recording

    return run, find_recording(name if path.is_file() else run.id, archive)


def _exported_run(archive: Archive, path: Path) -> Run:
    """The run of an exported file. Adds the programs of earlier runs that it used to the archive."""
    try:
        with path.open(encoding="utf-8") as stream:
            first = json.loads(stream.readline())
        for program in first.get("programs", ()):
            archive.put(Program.from_dict(program))
        return Run.from_dict(first["data"]["run"])
    except (OSError, ValueError, KeyError, TypeError, msgspec.ValidationError):
        hint = "`hipwright export RUN --out FILE` writes one; the canonical form cannot be replayed"
        raise BadInput(f"{path} is not the export of a run", hint=hint) from None


def models_spent(archive: Archive, run: Run) -> dict[str, Any] | None:
    """Calls, tokens and dollars of a run's models (`hipwright.llm.cost.spending`); None for a run without models."""
    if not (run.settings.get(SETTING) or {}).get("llm"):
        return None
    from hipwright.llm.archive_call_log import ArchiveCallLog
    from hipwright.llm.cost.spending import spending

    return spending(ArchiveCallLog(archive, run.id)).to_dict()


def command_options(run: Run) -> list[str]:
    """The command line options that give a run its settings."""
    kept = run.settings.get(SETTING) or {}
    values = [(option, kept[key]) for key, option in OPTIONS.items() if key in kept]
    return [word for option, value in values for one in _as_list(value) for word in (option, str(one))]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
