"""What every loop shares: optimizer steps in a folder, counted, timed, checkpointed and resumable in pieces."""

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
from hipwright.train.rl.settings import ImitationSettings, RLSettings

CADENCE = {"max_minutes", "checkpoint_every", "sample_every", "log_every", "evaluate_every"}
"""Settings that decide when something is written or when to stop, not what a step computes: a resumed run may change
them. `steps` too, while the learning rate does not depend on it."""


class Metrics(Protocol):
    """What the loops need of `hipwright.train.log.Log`."""

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Figures of a step."""
        ...

    def sample(self, stage: str, step: int, record: Mapping[str, Any]) -> None:
        """An example."""
        ...


class Stateful(Protocol):
    """A part of a run that a checkpoint holds."""

    def state(self) -> dict[str, Any]:
        """Tensors and plain values."""
        ...

    def load(self, state: dict[str, Any]) -> None:
        """Put `state()` back."""
        ...


@dataclass(frozen=True)
class LoopResult:
    """How far a loop came. finished: all steps are done or all minutes used; else a piece ended. steps count from 1."""

    finished: bool
    step: int
    minutes: float
    metrics: dict[str, float] = field(default_factory=dict)


class TrainingRun:
    """A run in `folder`. parts: by name, everything else that decides what the next step does; one that is named like
    a part of the identity is not restored where that differs.

    piece_minutes: how long this call may go on; the run can be continued by the same call. total: steps in all.
    """

    def __init__(
        self,
        policy: PolicyModel,
        settings: RLSettings | ImitationSettings,
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
            device=device_name(policy.device), settings=binding(settings), model=architecture(policy), **identity
        )
        self.step, self._before = 0, 0.0
        self._began, self._piece = time.monotonic(), piece_minutes

    def resume(self, *, allow_device_change: bool = False) -> bool:
        """Go on from the folder's last checkpoint; False: there is none. BadInput: it is another run's."""
        state = checkpoint.load(self.folder, self.identity, allow_device_change=allow_device_change)
        if state is None:
            return False
        self.policy.load(state["weights"])
        self.optim.load(state["optimizer"])
        for name, part in self.parts.items():
            if state["identity"].get(name) == self.identity.get(name):  # else another machine's, and that was allowed
                part.load(state["parts"][name])
        self.step, self._before = state["step"], state["minutes"]
        checkpoint.restore_random(state["random"])
        self._began = time.monotonic()
        return True

    @property
    def minutes(self) -> float:
        """Wall time in all pieces; what a kill undid is not in it."""
        return self._before + (time.monotonic() - self._began) / 60

    @property
    def finished(self) -> bool:
        """All steps, or all minutes."""
        return self.step >= self.total or self.ends_within(0)

    def ends_within(self, seconds: float) -> bool:
        """Whether the run's minutes are used so soon."""
        return self.minutes + seconds / 60 >= (self.settings.max_minutes or float("inf"))

    @property
    def paused(self) -> bool:
        """This piece's minutes are over."""
        return self._piece is not None and time.monotonic() - self._began >= 60 * self._piece

    @property
    def over(self) -> bool:
        """No further step now."""
        return self.finished or self.paused

    def apply(self, *, last: bool = True) -> Any:
        """One optimizer step on the gradients there are; returns their norm, a tensor. last: of this step's batch."""
        norm = self.optim.step(self.step)
        self.step += last
        return norm

    def skip(self) -> None:
        """A step without gradients."""
        self.step += 1

    def checkpoint_due(self) -> bool:
        """Whether this step ends with a checkpoint."""
        return self.step % self.settings.checkpoint_every == 0 or self.over

    def save(self) -> None:
        """Write a checkpoint of now."""
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
        """How far it is."""
        return LoopResult(self.finished, self.step, self.minutes, dict(metrics))


def binding(settings: RLSettings | ImitationSettings) -> dict[str, Any]:
    """The settings that a resumed run must share."""
    plain: dict[str, Any] = msgspec.to_builtins(settings)
    free = CADENCE | ({"steps", "epochs"} if settings.optim.schedule == "constant" else set())
    return {name: value for name, value in plain.items() if name not in free}


def architecture(policy: PolicyModel) -> list[Any]:
    """Names would need the whole state; the shapes in order tell models apart well enough."""
    return [list(one.shape) for one in policy.trainable_parameters()]


def device_name(device: str) -> str:
    """ "cpu", or the GPU's name."""
    if not device.startswith(TORCH_GPU):
        return device
    import torch

    return str(torch.cuda.get_device_name(device))
