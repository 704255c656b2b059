"""The language models that a command may ask without an archived run, and a client for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hipwright import config
from hipwright.errors import BadInput
from hipwright.events import Listener

if TYPE_CHECKING:
    from hipwright.llm.call_log import CallLog
    from hipwright.llm.client import Client
    from hipwright.llm.cost.budget import SpendingLimits
    from hipwright.llm.cost.prices import Prices
    from hipwright.llm.specs import Lineup

CALLS = "calls.jsonl"


@dataclass(frozen=True)
class ModelAccess:
    """The models that may be asked, the spending limits and the prices.

    replay: a recording of calls; its answers are used instead of the providers'.
    """

    lineup: Lineup
    limits: SpendingLimits
    prices: Prices
    replay: Path | None = None


def model_access(
    specs: Sequence[str],
    *,
    max_usd: float | None = None,
    max_tokens: int | None = None,
    prices: Sequence[str] = (),
    replay: Path | None = None,
) -> ModelAccess:
    """The models that specs name ([ROLE=]PROVIDER:MODEL[@URL][*WEIGHT]). prices: MODEL=IN,OUT in dollars per million
    tokens. BadInput for a model, a price or a recording that cannot be used."""
    from hipwright.agents.base import ROLES
    from hipwright.llm.cost.budget import SpendingLimits
    from hipwright.llm.cost.prices import Prices, parse_prices, require_prices
    from hipwright.llm.specs import parse_specs

    if replay is not None and not replay.is_file():
        raise BadInput(f"no such recording: {replay}", hint="calls.jsonl in the --out of an earlier benchmark is one")
    lineup, limits = parse_specs(specs, ROLES), SpendingLimits(usd=max_usd, tokens=max_tokens)
    known = Prices(parse_prices(prices))
    require_prices([one.name for one in lineup.members], known, limits)
    return ModelAccess(lineup, limits, known, replay)


@dataclass(frozen=True)
class LoggedClient:
    """An open client of language models, and the log of its calls."""

    client: Client
    log: CallLog


@contextmanager
def open_client(access: ModelAccess, folder: Path | None, listener: Listener) -> Iterator[LoggedClient]:
    """A client that logs its calls to calls.jsonl in the folder, or in memory without one.

    A call that the log answers is not made again. Events for the listener: "llm_retry" {model, why, wait}.
    """
    from hipwright.llm.call_log import MemoryCallLog
    from hipwright.llm.client import Client
    from hipwright.llm.cost.budget import Budget
    from hipwright.llm.file_call_log import FileCallLog
    from hipwright.llm.replay import Replay, read_recording

    with ExitStack() as stack:
        # read before the log is opened: the recording may be the same file
        recording = read_recording(access.replay) if access.replay is not None else None
        kept = stack.enter_context(FileCallLog(folder / CALLS)) if folder is not None else MemoryCallLog()
        log: CallLog = Replay(recording, then=kept) if recording is not None else kept
        budget = Budget.resumed(access.limits, kept)
        client = Client(log, budget, prices=access.prices, listener=listener, outage_seconds=config.outage_seconds())
        stack.enter_context(client)
        yield LoggedClient(client, log)
