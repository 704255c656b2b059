"""An environment from plain settings: in this process, or on a server that `hipwright train serve` runs."""

from __future__ import annotations

import atexit
import json
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hipwright.errors import BadInput
from hipwright.targets import TARGETS
from hipwright.train.environment import Environment
from hipwright.train.judging.judge_pool import JudgePool
from hipwright.train.judging.judges import ESTIMATED, LocalJudge
from hipwright.train.judging.protocols import ProgramJudge
from hipwright.train.judging.remote import RemoteJudge
from hipwright.train.recipe import Judging, RewardSettings
from hipwright.train.rewards import reward

VARIABLE = "HIPWRIGHT_ENVIRONMENT"
"""{"reward": {...}, "judge": {...}} as in a recipe, each optional; for processes that other libraries start."""

TOKEN = "HIPWRIGHT_JUDGE_TOKEN"
"""What servers that judge ask for; no recipe and no command line holds it."""


class EnvironmentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parts of a recipe that decide what an answer is worth."""

    reward: RewardSettings = RewardSettings()
    judge: Judging = Judging()
    unsafe: bool = False


def environment(opening: EnvironmentSettings, gpus: Sequence[int] = ()) -> Environment:
    """Closed as yet: a context manager. gpus: the numbers of those that judge; none: this process's (LOCAL_RANK).

    BadInput for an unknown reward or target.
    """
    rewarded = reward(opening.reward.name, **opening.reward.options)
    token = os.environ.get(TOKEN, "")
    judges: list[ProgramJudge]
    if opening.judge.urls:
        judges = [RemoteJudge(url, token=token) for url in opening.judge.urls]
    else:
        judges = [_local(opening, gpu) for gpu in gpus or [int(os.environ.get("LOCAL_RANK", "0"))]]
    return Environment(judges[0] if len(judges) == 1 else JudgePool(judges), rewarded)


def _local(opening: EnvironmentSettings, gpu: int) -> LocalJudge:
    chosen = opening.judge
    return LocalJudge(
        targets_of(chosen), workers=chosen.workers, gpu=gpu, gpu_memory_gb=chosen.gpu_memory_gb, unsafe=opening.unsafe
    )


def targets_of(judge: Judging) -> tuple[str, ...]:
    """Those that are named; else a GPU of this machine, or without one the processor and the static estimate."""
    if judge.targets:
        return judge.targets
    from hipwright.sandbox import gpu_count

    here = next((target.name for target in TARGETS.gpus if gpu_count(target)), None)
    return (here,) if here else ESTIMATED


def given(plain: Mapping[str, Any] | None = None) -> EnvironmentSettings:
    """What other libraries were handed: a mapping, else the variable HIPWRIGHT_ENVIRONMENT, else all defaults."""
    text = os.environ.get(VARIABLE, "")
    try:
        return msgspec.convert(json.loads(text or "{}") if plain is None else _plain(plain), EnvironmentSettings)
    except (ValueError, TypeError) as error:  # msgspec's errors are ValueErrors
        raise BadInput(f"{VARIABLE}: {error}", hint='e.g. {"reward": {"name": "hipwright"}}') from error


_open: dict[tuple[int, str], Environment] = {}
_opening = threading.Lock()


def shared(plain: Mapping[str, Any] | None = None) -> Environment:
    """An open environment, one a process and configuration; it closes with the process. plain: as for `given`."""
    opening = given(plain)
    name = (os.getpid(), json.dumps(msgspec.to_builtins(opening), sort_keys=True))  # a fork needs a machine of its own
    with _opening:
        if name not in _open:
            made = environment(opening)
            made.__enter__()
            atexit.register(made.__exit__, None, None, None)
            _open[name] = made
        return _open[name]


def _plain(value: Any) -> Any:
    """hydra hands over mappings and lists of its own."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (str, int, float)) or value is None:
        return value
    return [_plain(one) for one in value]
