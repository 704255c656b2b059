"""Makes environments from settings, with judges of this machine or of servers (`hipwright train serve`)."""

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
from hipwright.train.judging.fleet import FleetJudge
from hipwright.train.judging.judge_pool import JudgePool
from hipwright.train.judging.judges import ESTIMATED, LocalJudge
from hipwright.train.judging.protocols import ProgramJudge
from hipwright.train.judging.remote import RemoteJudge
from hipwright.train.recipe import JudgeSettings, RewardSettings
from hipwright.train.rewards import reward

SETTINGS_VARIABLE = "HIPWRIGHT_ENVIRONMENT"
"""The environment variable with {"reward": {...}, "judge": {...}} as in a recipe, each optional, for processes that
other libraries start."""

TOKEN_VARIABLE = "HIPWRIGHT_JUDGE_TOKEN"
"""The environment variable with the token of judging servers; recipes and command lines never hold it."""


class EnvironmentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parts of a recipe that decide an answer's reward."""

    reward: RewardSettings = RewardSettings()
    judge: JudgeSettings = JudgeSettings()
    unsafe: bool = False


def new_environment(settings: EnvironmentSettings, gpus: Sequence[int] = ()) -> Environment:
    """An environment that is not opened yet. gpus: the indices of the judging GPUs; none: LOCAL_RANK's.

    Raises BadInput for an unknown reward or target.
    """
    reward_function = reward(settings.reward.name, **settings.reward.options)
    token = os.environ.get(TOKEN_VARIABLE, "")
    judges: list[ProgramJudge]
    if settings.judge.urls:
        judges = [RemoteJudge(url, token=token) for url in settings.judge.urls]
    elif settings.judge.fleet:
        judges = [_fleet_judge(settings)]
    else:
        judges = [_local_judge(settings, gpu) for gpu in gpus or [int(os.environ.get("LOCAL_RANK", "0"))]]
    return Environment(judges[0] if len(judges) == 1 else JudgePool(judges), reward_function)


def _fleet_judge(settings: EnvironmentSettings) -> FleetJudge:
    chosen = settings.judge
    return FleetJudge(
        chosen.fleet,
        chosen.targets or ESTIMATED,
        place=chosen.place,
        workers=chosen.workers,
        unsafe=settings.unsafe,
    )


def _local_judge(settings: EnvironmentSettings, gpu: int) -> LocalJudge:
    chosen = settings.judge
    return LocalJudge(
        judge_targets(chosen),
        workers=chosen.workers,
        gpu=gpu,
        gpu_memory_gb=chosen.gpu_memory_gb,
        counters=chosen.counters,
        unsafe=settings.unsafe,
    )


def judge_targets(judge: JudgeSettings) -> tuple[str, ...]:
    """The targets that are named; else a GPU of this machine, or without one the cpu target and an AMD target."""
    if judge.targets:
        return judge.targets
    from hipwright.sandbox import gpu_count

    here = next((target.name for target in TARGETS.gpus if gpu_count(target)), None)
    return (here,) if here else ESTIMATED


def read_settings(plain: Mapping[str, Any] | None = None) -> EnvironmentSettings:
    """The settings of a mapping, else of the variable HIPWRIGHT_ENVIRONMENT, else the defaults. Raises BadInput."""
    text = os.environ.get(SETTINGS_VARIABLE, "")
    try:
        return msgspec.convert(json.loads(text or "{}") if plain is None else _plain(plain), EnvironmentSettings)
    except (ValueError, TypeError) as error:  # msgspec's errors are ValueErrors
        raise BadInput(f"{SETTINGS_VARIABLE}: {error}", hint='e.g. {"reward": {"name": "hipwright"}}') from error


_environments: dict[tuple[int, str], Environment] = {}
_environments_lock = threading.Lock()


def shared_environment(plain: Mapping[str, Any] | None = None) -> Environment:
    """The open environment of this process with these settings; it closes at exit. plain: as for `read_settings`."""
    settings = read_settings(plain)
    key = (os.getpid(), json.dumps(msgspec.to_builtins(settings), sort_keys=True))  # a forked process opens its own
    with _environments_lock:
        if key not in _environments:
            opened = new_environment(settings)
            opened.__enter__()
            atexit.register(opened.__exit__, None, None, None)
            _environments[key] = opened
        return _environments[key]


def _plain(value: Any) -> Any:
    """The value in plain types, of hydra's own mappings and lists."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (str, int, float)) or value is None:
        return value
    return [_plain(one) for one in value]
