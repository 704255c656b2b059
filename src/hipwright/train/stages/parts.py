"""What every stage opens: the model, the log, and the environment."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hipwright.events import doing
from hipwright.train import hf
from hipwright.train.environment import Environment
from hipwright.train.judging.settings import EnvironmentSettings, new_environment
from hipwright.train.log import Log, ProgressLog
from hipwright.train.stages.stage_work import Say, StageWork


def load_model(work: StageWork, texts: list[str]) -> tuple[Any, Any]:
    """(the model, its tokenizer); in a dry run a random model, with a tokenizer trained on the texts."""
    doing("loading the model")
    chosen = work.recipe.model
    if work.dry:
        from hipwright.train.tiny import tiny_model

        return tiny_model(chosen.architecture, texts)
    return hf.load_model(work.model or chosen.name, dtype=chosen.dtype, attention=chosen.attention)


def open_log(stack: ExitStack, work: StageWork, point: Path | None, say: Say) -> ProgressLog | None:
    """The log, in the main process; None in the others."""
    if os.environ.get("RANK", "0") != "0":
        return None
    return ProgressLog(stack.enter_context(Log(work.folder, work.trackers, resume_step=hf.step_of(point))), say)


def stage_environment(work: StageWork) -> Environment:
    """The environment of the recipe's judge and reward, not yet opened."""
    recipe = work.recipe
    return new_environment(EnvironmentSettings(reward=recipe.reward, judge=recipe.judge, unsafe=work.unsafe))
