"""A training run, shared by all loops: optimizer steps with checkpoints in a folder, in one or several calls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hipwright.targets import TORCH_GPU
from hipwright.train.rl import checkpoint
from hipwright.train.rl.optim import Optim
from hipwright.train.rl.policy import PolicyModel
from hipwright.train.rl.settings import LoopSettings

FREE_SETTINGS = {"max_minutes", "checkpoint_every", "sample_every", "log_every", "evaluate_every"}
"""Settings that a resumed run may change, since no step's result depends on them; also `steps` and `epochs` where the
learning rate does not depend on them."""


class Metrics(Protocol):
    """The part of `hipwright.train.log.Log` that the loops use."""

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Records the figures of a step."""
        ...

    def sample(self, stage: str, step: int, record: Mapping[str, Any]) -> None:
        """Records an example."""
        ...


class Stateful(Protocol):
    """A part of a run that is saved in checkpoints."""

    def state(self) -> dict[str, Any]:
        """The state in tensors and plain values."""
        ...

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`."""
        ...


@dataclass(frozen=True)
class LoopResult:
    """The end of a call. finished: all steps done or all minutes used, else the piece ended; step: steps done."""

    finished: bool
    step: int
    minutes: float
    metrics: dict[str, float] = field(default_factory=dict)


class TrainingRun:
    """A run in `folder`: steps, minutes, optimizer and checkpoints.

    total: steps in all. parts: by name, the other state that the next step depends on; a part with the name of an
    identity's part is not restored where that differs. piece_minutes: the limit of this call.
    """

    def __init__(
        self,
        policy: PolicyModel,
        settings: LoopSettings,
        total: int,
        folder: Path,
        identity: Mapping[str, Any],
        parts: Mapping[str, Stateful],
        piece_minutes: float | None = None,
    ) -> None:
        self.policy, self.settings, self.total, self.folder = policy, settings, total, folder
        self.optim = Optim(policy.trainable_parameters(), settings.optim, total)
        self.parts = dict(parts)
        self.identity = checkpoint.identity_of(
            device=device_name(policy.device),
            settings=resume_settings(settings),
            model=parameter_shapes(policy),
            **identity,
        )
        self.step, self._before = 0, 0.0
        self._began, self._piece = time.monotonic(), piece_minutes

    def resume(self, *, allow_device_change: bool = False) -> bool:
        """Restores the folder's last checkpoint; False where there is none. Raises BadInput for another run's."""
        state = checkpoint.load(self.folder, self.identity, allow_device_change=allow_device_change)
        if state is None:
            return False
        self.policy.load(state["weights"])
        self.optim.load(state["optimizer"])
        for name, part in self.parts.items():
            if state["identity"].get(name) == self.identity.get(name):  # else allow_device_change was given
                part.load(state["parts"][name])
        self.step, self._before = state["step"], state["minutes"]
        checkpoint.restore_random(state["random"])
        self._began = time.monotonic()
        return True

    @property
    def minutes(self) -> float:
        """Wall time of all pieces, without time that a kill lost."""
        return self._before + (time.monotonic() - self._began) / 60

    @property
    def finished(self) -> bool:
        """Whether all steps are done or all minutes used."""
        return self.step >= self.total or self.ends_within(0)

    def ends_within(self, seconds: float) -> bool:
        """Whether the run's minutes end within so many seconds."""
        return self.minutes + seconds / 60 >= (self.settings.max_minutes or float("inf"))

    @property
    def paused(self) -> bool:
        """Whether this piece's minutes are over."""
        return self._piece is not None and time.monotonic() - self._began >= 60 * self._piece

    @property
    def over(self) -> bool:
        """Whether this call takes no further step."""
        return self.finished or self.paused

    def apply(self, *, last: bool = True) -> Any:
        """Applies the accumulated gradients; returns their norm, a tensor. last: the last update of the step."""
        norm = self.optim.step(self.step)
        self.step += last
        return norm

    def skip(self) -> None:
        """Counts a step without gradients."""
        self.step += 1

    def checkpoint_due(self) -> bool:
        """Whether this step ends with a checkpoint."""
        return self.step % self.settings.checkpoint_every == 0 or self.over

    def save(self) -> None:
        """Writes a checkpoint of the present state."""
        state = {
            "step": self.step,
            "minutes": self.minutes,
            "weights": self.policy.state(),
            "optimizer": self.optim.state(),
            "random": checkpoint.random_states(),
            "parts": {name: part.state() for name, part in self.parts.items()},
        }
        checkpoint.save(self.folder, self.step, self.identity, state)

    def result(self, metrics: Mapping[str, float]) -> LoopResult:
        """The result of this call."""
        return LoopResult(self.finished, self.step, self.minutes, dict(metrics))


def resume_settings(settings: LoopSettings) -> dict[str, Any]:
    """The settings that a resumed run may not change."""
    plain: dict[str, Any] = msgspec.to_builtins(settings)
    free = FREE_SETTINGS | ({"steps", "epochs"} if settings.optim.schedule == "constant" else set())
    return {name: value for name, value in plain.items() if name not in free}


def parameter_shapes(policy: PolicyModel) -> list[Any]:
    """The shapes of the trainable parameters in order, which identify the model's architecture."""
    return [list(one.shape) for one in policy.trainable_parameters()]


def device_name(device: str) -> str:
    """ "cpu", or the GPU's name."""
    if not device.startswith(TORCH_GPU):
        return device
    import torch

    return str(torch.cuda.get_device_name(device))
