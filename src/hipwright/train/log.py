"""The log of a training: two files that are always written, and optional trackers (docs/training.md).

    metrics.jsonl   {"stage": "rl", "step": 3, "values": {"reward": 0.4, ...}}     one record a line; numbers or null
    samples.jsonl   {"stage": "rl", "step": 3, "record": {"prompt": ..., "completion": ..., ...}}

No record holds a time of day, so that a run that was killed and resumed writes the same files as an uninterrupted one.
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

from hipwright.disk import naming
from hipwright.errors import BadInput
from hipwright.events import doing

METRICS, SAMPLES = "metrics.jsonl", "samples.jsonl"
DEFAULT_TRACKERS = ("tensorboard",)
"""The trackers where none are named; left out where they are not installed."""


class LogLine(msgspec.Struct):
    """The fields that every line of both files has."""

    stage: str
    step: int


class Tracker(Protocol):
    """A further destination of the figures. Called by one thread at a time."""

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Records the figures of one step of a stage."""
        ...

    def close(self) -> None:
        """Writes everything out and closes."""
        ...


class Log:
    """The log in a folder. Thread-safe; a context manager. Every record is in its file when its call returns.

    trackers: names of `TRACKERS`; None: those of `DEFAULT_TRACKERS` that are installed. resume_step: the step of the
    checkpoint that training resumes from (-1 for none); later records of a stage are dropped when the stage is first
    written to. Raises BadInput for a tracker that is unknown or not installed.
    """

    def __init__(self, folder: Path, trackers: Sequence[str] | None = None, *, resume_step: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._trackers = _open_trackers(folder, trackers, resume_step)
        self._metrics = _LogFile(folder / METRICS, resume_step)
        self._samples = _LogFile(folder / SAMPLES, resume_step)
        self._lock = threading.Lock()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Records the figures of one step. stage: "sft", "rl" or "eval". Values that are not finite become null."""
        plain = {name: float(value) for name, value in values.items()}
        with self._lock:
            self._metrics.write(stage, step, "values", plain)
            for tracker in self._trackers:
                tracker.metrics(stage, step, plain)

    def sample(self, stage: str, step: int, record: Mapping[str, Any]) -> None:
        """Records one example of plain JSON types or msgspec records."""
        with self._lock:
            self._samples.write(stage, step, "record", dict(record))

    def close(self) -> None:
        """Closes the files and the trackers."""
        with self._lock:
            for tracker in self._trackers:
                tracker.close()
            self._trackers = []
            self._metrics.close()
            self._samples.close()


PROGRESS_SECONDS = 5.0
"""Least time between two progress lines."""
PROGRESS_FIGURES = (
    "loss",
    "reward",
    "compiled",
    "correct",
    "speedup",
    "hack",
    "rewards_an_hour",
    "tokens_per_second",
    "minutes",
)
"""The figures of a progress line; those that a step does not have are left out."""


class ProgressLog:
    """A Log that also sends progress lines, at most one every `PROGRESS_SECONDS`, to `say`."""

    def __init__(self, log: Log, say: Callable[[str], None]) -> None:
        self._log, self._say, self._said = log, say, 0.0

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """As `Log`."""
        self._log.metrics(stage, step, values)
        doing(f"training ({stage}), step {step} done")
        if time.monotonic() - self._said >= PROGRESS_SECONDS:
            self._said = time.monotonic()
            shown = [f"{name} {values[name]:.4g}" for name in PROGRESS_FIGURES if isfinite(values.get(name, inf))]
            self._say(f"{stage} step {step}: {', '.join(shown)}")

    def sample(self, stage: str, step: int, record: Mapping[str, Any]) -> None:
        """As `Log`."""
        self._log.sample(stage, step, record)


class _LogFile:
    """A file that lines are appended to. A torn last line, as kill -9 leaves one, is cut off on opening."""

    def __init__(self, path: Path, resume_step: int | None) -> None:
        self._path, self._resume = path, resume_step
        self._trimmed: set[str] = set()
        cut_torn_line(path)
        self._stream = path.open("ab")

    def write(self, stage: str, step: int, key: str, value: dict[str, Any]) -> None:
        if self._resume is not None and stage not in self._trimmed:
            self._trim(stage, self._resume)
        with naming(self._path):
            self._stream.write(msgspec.json.encode({"stage": stage, "step": step, key: value}) + b"\n")
            self._stream.flush()

    def close(self) -> None:
        self._stream.close()

    def _trim(self, stage: str, resume_step: int) -> None:
        self._trimmed.add(stage)
        lines = self._path.read_bytes().splitlines(keepends=True)
        stale = _lines_beyond([msgspec.json.decode(line, type=LogLine) for line in lines], stage, resume_step)
        if stale:
            self._stream.close()
            temporary = self._path.with_suffix(".tmp")
            temporary.write_bytes(b"".join(line for place, line in enumerate(lines) if place not in stale))
            temporary.replace(self._path)  # whole or not at all
            self._stream = self._path.open("ab")


def cut_torn_line(path: Path) -> None:
    """Removes what follows the last line end of a file, if there is such a file."""
    if path.exists():
        text = path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.truncate(path, whole)


def _lines_beyond(lines: Sequence[LogLine], stage: str, resume_step: int) -> set[int]:
    """The indices of a stage's lines beyond a step, in the last pass of the stage.

    A stage such as "eval" may start again at a low step after another training in the same folder.
    """
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


def _open_trackers(folder: Path, names: Sequence[str] | None, resume_step: int | None) -> list[Tracker]:
    wanted = list(dict.fromkeys(DEFAULT_TRACKERS if names is None else names))
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
    """Event files in FOLDER/tensorboard, one run for each stage, so that a stage's purge leaves other stages alone."""

    def __init__(self, folder: Path, resume_step: int | None) -> None:
        self._writer: Any = importlib.import_module("torch.utils.tensorboard").SummaryWriter
        self._folder, self._purge = folder / "tensorboard", None if resume_step is None else resume_step + 1
        self._writers: dict[str, Any] = {}

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Adds a scalar for each value."""
        if stage not in self._writers:
            # readers drop the later steps of the run that was killed
            self._writers[stage] = self._writer(str(self._folder / stage), purge_step=self._purge)
        for name, value in values.items():
            self._writers[stage].add_scalar(name, value, step)

    def close(self) -> None:
        """Flushes and closes the writers."""
        for writer in self._writers.values():
            writer.close()


class Wandb:
    """Weights & Biases, offline unless WANDB_API_KEY or WANDB_MODE is set. A resumed training continues its run."""

    def __init__(self, folder: Path, resume_step: int | None) -> None:
        wandb: Any = importlib.import_module("wandb")
        mode = os.environ.get("WANDB_MODE") or ("online" if os.environ.get("WANDB_API_KEY") else "offline")
        known = _read_run_id(folder, "wandb") if resume_step is not None else ""
        project = os.environ.get("WANDB_PROJECT", "hipwright")
        self._run = wandb.init(
            project=project, name=folder.name, dir=str(folder), mode=mode, id=known or None, resume="allow"
        )
        _write_run_id(folder, "wandb", self._run.id)
        self._stages: set[str] = set()

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Logs STAGE/name over STAGE/step, since wandb's own step may not decrease, and a new stage starts at 0."""
        if stage not in self._stages:
            self._stages.add(stage)
            self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
        self._run.log({f"{stage}/step": step, **{f"{stage}/{name}": value for name, value in values.items()}})

    def close(self) -> None:
        """Ends the run."""
        self._run.finish()


class Mlflow:
    """MLflow in FOLDER/mlflow.db unless MLFLOW_TRACKING_URI is set. A resumed training continues its run."""

    def __init__(self, folder: Path, resume_step: int | None) -> None:
        tracking: Any = importlib.import_module("mlflow.tracking")
        # current MLflow refuses a store of plain files
        address = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.resolve() / 'mlflow.db'}"
        self._client = tracking.MlflowClient(tracking_uri=address)
        self._id = _read_run_id(folder, "mlflow") if resume_step is not None else ""
        if not self._id:
            found = self._client.get_experiment_by_name("hipwright")
            experiment = found.experiment_id if found is not None else self._client.create_experiment("hipwright")
            self._id = self._client.create_run(experiment, run_name=folder.name).info.run_id
            _write_run_id(folder, "mlflow", self._id)

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Logs STAGE/name at a step."""
        for name, value in values.items():
            self._client.log_metric(self._id, f"{stage}/{name}", value, step=step)

    def close(self) -> None:
        """Ends the run."""
        self._client.set_terminated(self._id)


def _read_run_id(folder: Path, tracker: str) -> str:
    """The id of the tracker's run that an earlier process of this training started; "" for none."""
    path = folder / f"{tracker}.run"
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""


def _write_run_id(folder: Path, tracker: str, run: str) -> None:
    (folder / f"{tracker}.run").write_text(f"{run}\n", encoding="utf-8")


TRACKERS: dict[str, Callable[[Path, int | None], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": Mlflow,
}
