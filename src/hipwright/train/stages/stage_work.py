"""The record of a stage to run, which the command hands to every process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from hipwright.train.recipe import Recipe, Stage

WORK, DONE = "work.json", "result.json"
"""Files of a training's folder: the `StageWork` that processes read, and the figures of the finished stage."""

Say = Callable[[str], None]


class StageWork(msgspec.Struct, frozen=True, kw_only=True):
    """A stage to run.

    recipe: resolved; data, out: folders; model: another folder or name than the recipe's, such as SFT's result;
    trackers: as `Log`'s; dry: one update of a random model.
    """

    stage: Stage
    recipe: Recipe
    data: str
    out: str
    model: str = ""
    trackers: tuple[str, ...] | None = None
    resume: bool = False
    allow_device_change: bool = False
    unsafe: bool = False
    dry: bool = False

    @property
    def folder(self) -> Path:
        """The training's folder."""
        return Path(self.out)

    @property
    def launcher(self) -> str:
        """What runs the stage: "here", "accelerate" or "verl"."""
        return self.recipe.launch.of(self.stage)
