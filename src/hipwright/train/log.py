"""What a training says of itself: two files that are always written, and trackers beside them (docs/training.md).

    metrics.jsonl   {"stage": "rl", "step": 3, "values": {"reward": 0.4, ...}}     one line a record, a number or null
    samples.jsonl   {"stage": "rl", "step": 3, "record": {"prompt": ..., "completion": ..., ...}}

No line holds a time of day: a run that was killed and resumed leaves the files that an uninterrupted one leaves.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import msgspec

from hipwright.errors import BadInput

METRICS, SAMPLES = "metrics.jsonl", "samples.jsonl"
DEFAULT = ("tensorboard",)
"""The trackers of who names none; left out where they are not installed."""


class LogLine(msgspec.Struct):
    """What every line of both files begins with."""

    stage: str
    step: int


class Tracker(Protocol):
    """Where figures go besides the files. One thread at a time."""

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Figures of one step of a stage."""
        ...

    def close(self) -> None:
        """Everything is written when this returns."""
        ...


class Log:
    """The log of a folder. Thread-safe; a context manager. Every record is in its file when its call returns.

    trackers: names of `TRACKERS`; None: those of `DEFAULT` that are installed. resume_step: the step of the checkpoint
    that training goes on from (-1 for none): what was logged beyond it is dropped, a stage at a time, when the stage is
    first written to. BadInput for a tracker that does not exist or is not installed.
    """

    def __init__(self, folder: Path, trackers: Sequence[str] | None = None, *, resume_step: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._trackers = _open(folder, trackers, resume_step)
        self._metrics = _File(folder / METRICS, resume_step)
        self._samples = _File(folder / SAMPLES, resume_step)
        self._lock = threading.Lock()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Figures of one step; stage: "sft", "rl" or "eval". A value that is no finite number is written as null."""
        plain = {name: float(value) for name, value in values.items()}
        with self._lock:
            self._metrics.write(stage, step, "values", plain)
            for tracker in self._trackers:
                tracker.metrics(stage, step, plain)

    def sample(self, stage: str, step: int, record: Mapping[str, Any]) -> None:
        """One example: plain JSON types, or records of ours."""
        with self._lock:
            self._samples.write(stage, step, "record", dict(record))

    def close(self) -> None:
        """Close the files and the trackers."""
        with self._lock:
            for tracker in self._trackers:
                tracker.close()
            self._trackers = []
            self._metrics.close()
            self._samples.close()


LINE_SECONDS = 5.0
TOLD = ("loss", "reward", "compiled", "correct", "speedup", "hack", "rewards_an_hour", "tokens_per_second", "minutes")
"""What such a line says of a step, of what is known."""


class Telling:
    """A Log that also says a line now and then, for those who wait."""

    def __init__(self, log: Log, say: Callable[[str], None]) -> None:
        self._log, self._say, self._said = log, say, 0.0

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """As Log's."""
        self._log.metrics(stage, step, values)
        if time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            shown = [f"{name} {values[name]:.4g}" for name in TOLD if isfinite(values.get(name, inf))]
            self._say(f"{stage} step {step}: {', '.join(shown)}")

    def sample(self, stage: str, step: int, record: Mapping[str, Any]) -> None:
        """As Log's."""
        self._log.sample(stage, step, record)


class _File:
    """Lines appended to a file. A torn last line, as kill -9 leaves one, is cut off when it is opened."""

    def __init__(self, path: Path, resume_step: int | None) -> None:
        self._path, self._resume = path, resume_step
        self._trimmed: set[str] = set()
        _mend(path)
        self._stream = path.open("ab")

    def write(self, stage: str, step: int, key: str, value: dict[str, Any]) -> None:
        if self._resume is not None and stage not in self._trimmed:
            self._trim(stage, self._resume)
        self._stream.write(msgspec.json.encode({"stage": stage, "step": step, key: value}) + b"\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()

    def _trim(self, stage: str, resume_step: int) -> None:
        self._trimmed.add(stage)
        lines = self._path.read_bytes().splitlines(keepends=True)
        stale = _beyond([msgspec.json.decode(line, type=LogLine) for line in lines], stage, resume_step)
        if stale:
            self._stream.close()
            beside = self._path.with_suffix(".tmp")
            beside.write_bytes(b"".join(line for place, line in enumerate(lines) if place not in stale))
            beside.replace(self._path)  # whole or not at all
            self._stream = self._path.open("ab")


def _mend(path: Path) -> None:
    """Cut off what follows the last line end."""
    if path.exists():
        text = path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.truncate(path, whole)


def _beyond(lines: Sequence[LogLine], stage: str, resume_step: int) -> set[int]:
    """The places of a stage's lines beyond a step, in its last pass: "eval" may begin anew after another training."""
    found: set[int] = set()
    later: int | None = None
    for place in reversed(range(len(lines))):
        line = lines[place]
        if line.stage != stage:
            continue
        if line.step <= resume_step or (later is not None and line.step > later):
            break
        found.add(place)
        later = line.step
    return found


# ---------------------------------------------------------------- trackers


def _open(folder: Path, names: Sequence[str] | None, resume_step: int | None) -> list[Tracker]:
    wanted = list(dict.fromkeys(DEFAULT if names is None else names))
    for name in wanted:
        if name not in TRACKERS:
            raise BadInput(f"there is no tracker {name!r}", hint=f"trackers: {', '.join(TRACKERS)}")
    opened: list[Tracker] = []
    for name in wanted:
        try:
            opened.append(TRACKERS[name](folder, resume_step))
        except ImportError as error:
            if names is not None:
                for one in opened:
                    one.close()
                raise BadInput(f"the tracker {name} is not installed", hint=f"pip install {name}") from error
    return opened


class TensorBoard:
    """Event files in FOLDER/tensorboard, one run a stage, so that steps of one stage do not purge another's."""

    def __init__(self, folder: Path, resume_step: int | None) -> None:
        self._writer: Any = importlib.import_module("torch.utils.tensorboard").SummaryWriter
        self._folder, self._purge = folder / "tensorboard", None if resume_step is None else resume_step + 1
        self._writers: dict[str, Any] = {}

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """One scalar a value."""
        if stage not in self._writers:
            # what readers have of later steps was of a run that was killed
            self._writers[stage] = self._writer(str(self._folder / stage), purge_step=self._purge)
        for name, value in values.items():
            self._writers[stage].add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close."""
        for writer in self._writers.values():
            writer.close()


class Wandb:
    """Weights & Biases, offline unless WANDB_API_KEY or WANDB_MODE is set. A resumed training goes on with its run."""

    def __init__(self, folder: Path, resume_step: int | None) -> None:
        wandb: Any = importlib.import_module("wandb")
        mode = os.environ.get("WANDB_MODE") or ("online" if os.environ.get("WANDB_API_KEY") else "offline")
        known = _known(folder, "wandb") if resume_step is not None else ""
        project = os.environ.get("WANDB_PROJECT", "hipwright")
        self._run = wandb.init(
            project=project, name=folder.name, dir=str(folder), mode=mode, id=known or None, resume="allow"
        )
        _remember(folder, "wandb", self._run.id)
        self._stages: set[str] = set()

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """STAGE/name over STAGE/step: wandb's own step never goes back, ours does at a new stage."""
        if stage not in self._stages:
            self._stages.add(stage)
            self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
        self._run.log({f"{stage}/step": step, **{f"{stage}/{name}": value for name, value in values.items()}})

    def close(self) -> None:
        """End the run."""
        self._run.finish()


class Mlflow:
    """MLflow: FOLDER/mlflow.db unless MLFLOW_TRACKING_URI is set. A resumed training goes on with its run."""

    def __init__(self, folder: Path, resume_step: int | None) -> None:
        tracking: Any = importlib.import_module("mlflow.tracking")
        # MLflow refuses its store of plain files by now
        address = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.resolve() / 'mlflow.db'}"
        self._client = tracking.MlflowClient(tracking_uri=address)
        self._id = _known(folder, "mlflow") if resume_step is not None else ""
        if not self._id:
            found = self._client.get_experiment_by_name("hipwright")
            experiment = found.experiment_id if found is not None else self._client.create_experiment("hipwright")
            self._id = self._client.create_run(experiment, run_name=folder.name).info.run_id
            _remember(folder, "mlflow", self._id)

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """STAGE/name at a step."""
        for name, value in values.items():
            self._client.log_metric(self._id, f"{stage}/{name}", value, step=step)

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._id)


def _known(folder: Path, tracker: str) -> str:
    """The id of the tracker's run that an earlier process of this training began, "" if none did."""
    path = folder / f"{tracker}.run"
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""


def _remember(folder: Path, tracker: str, run: str) -> None:
    (folder / f"{tracker}.run").write_text(f"{run}\n", encoding="utf-8")


TRACKERS: dict[str, Callable[[Path, int | None], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": Mlflow,
}
