"""The log: complete after kill -9, equal after a resume, and in its trackers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
import venv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.errors import BadInput
from hipwright.train.log import DEFAULT_TRACKERS, Log


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def train(log: Log, start: int, end: int, stage: str = "rl") -> None:
    """Logs a stage with an evaluation every 10 steps and a sample every 5, as the loops do."""
    for step in range(start, end):
        log.metrics(stage, step, {"loss": 1 / (1 + step), "reward": step / 7})
        if step % 5 == 0:
            log.sample(stage, step, {"completion": f"text of {step}"})
        if step % 10 == 0:
            log.metrics("eval", step, {"correct": step / 100})


def test_the_files_hold_what_was_logged(tmp_path: Path) -> None:
    with Log(tmp_path, ()) as log:
        log.metrics("sft", 0, {"loss": 2, "bad": float("nan"), "worse": float("inf")})
        log.sample("sft", 0, {"prompt": "p\n\u2028", "outcome": {"status": "pass"}})
    assert lines(tmp_path / "metrics.jsonl") == [
        {"stage": "sft", "step": 0, "values": {"loss": 2.0, "bad": None, "worse": None}}
    ]
    kept = (tmp_path / "samples.jsonl").read_text().rstrip("\n").split("\n")
    assert [json.loads(one)["record"]["prompt"] for one in kept] == ["p\n\u2028"]


@given(killed=st.integers(1, 40), kept=st.integers(0, 40), torn=st.integers(0, 30))
def test_a_resumed_log_equals_an_uninterrupted_one(tmp_path_factory: Any, killed: int, kept: int, torn: int) -> None:
    kept = min(kept, killed)
    folders = [tmp_path_factory.mktemp("log") for _ in range(2)]
    for folder in folders:  # an earlier stage in the same folder, with steps and evaluations beyond those of the later
        with Log(folder, ()) as log:
            train(log, 0, 61, "sft")
    with Log(folders[0], ()) as log:
        train(log, 0, 45)
    with Log(folders[1], ()) as log:
        train(log, 0, killed)
    with (folders[1] / "metrics.jsonl").open("ab") as stream:
        stream.write(b'{"stage":"rl","step":99,"values":{"loss'[:torn])
    with Log(folders[1], (), resume_step=kept - 1) as log:
        train(log, kept, 45)
    for name in ("metrics.jsonl", "samples.jsonl"):
        one, other = (sorted((folder / name).read_text().splitlines()) for folder in folders)
        assert one == other, name


CHILD = """
import itertools, sys
from pathlib import Path
from hipwright.train.log import Log
log = Log(Path(sys.argv[1]), ())
for step in itertools.count():
    log.metrics("rl", step, {"x" * 200: step})
    print(step, flush=True)
"""


def test_kill_9_loses_no_record_that_was_logged(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [int(child.stdout.readline()) for _ in range(50)]
        os.kill(child.pid, signal.SIGKILL)
        said += [int(line) for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    with Log(tmp_path, ()):
        pass
    assert [one["step"] for one in lines(tmp_path / "metrics.jsonl")][: len(said)] == said


def test_an_unknown_or_missing_tracker_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="no tracker 'comet'") as unknown:
        Log(tmp_path, ("comet",))
    assert "tensorboard" in unknown.value.hint
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(BadInput, match="wandb is not installed") as missing:
        Log(tmp_path, ("wandb",))
    assert missing.value.hint == "pip install wandb"


def test_without_tensorboard_the_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with Log(tmp_path) as log:
        log.metrics("rl", 1, {"reward": 0.5})
    assert lines(tmp_path / "metrics.jsonl") and not (tmp_path / "tensorboard").exists()
    with pytest.raises(BadInput, match="tensorboard is not installed"):
        Log(tmp_path, DEFAULT_TRACKERS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_drops_the_steps_of_a_killed_run(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with Log(tmp_path) as log:
        train(log, 0, 21, "sft")
        train(log, 0, 30)
    with Log(tmp_path, resume_step=20) as log:
        for step in range(21, 25):
            log.metrics("rl", step, {"loss": 1 / (1 + step), "reward": -1.0})

    def scalars(stage: str, name: str) -> dict[int, float]:
        found = accumulator.EventAccumulator(str(tmp_path / "tensorboard" / stage))
        found.Reload()
        return {event.step: event.value for event in found.Scalars(name)}

    assert scalars("sft", "loss") == pytest.approx({step: 1 / (1 + step) for step in range(21)})
    expected = {step: step / 7 for step in range(21)} | dict.fromkeys(range(21, 25), -1.0)
    assert scalars("rl", "reward") == pytest.approx(expected)


class FakeRun:
    def __init__(self, id: str) -> None:
        self.id, self.logged, self.defined, self.finished = id, [], [], False

    def define_metric(self, name: str, step_metric: str) -> None:
        self.defined.append((name, step_metric))

    def log(self, values: dict[str, float]) -> None:
        self.logged.append(values)

    def finish(self) -> None:
        self.finished = True


def test_wandb_is_offline_without_a_key_and_resumes_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[FakeRun] = []
    asked: list[dict[str, Any]] = []

    def init(**options: Any) -> FakeRun:
        asked.append(options)
        runs.append(FakeRun(options["id"] or f"made{len(runs)}"))
        return runs[-1]

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    for resume in (None, 3, None):
        with Log(tmp_path, ("wandb",), resume_step=resume) as log:
            log.metrics("rl", 4, {"reward": 0.5})
            log.metrics("eval", 4, {"correct": 0.25})
    assert [run.id for run in runs] == ["made0", "made0", "made2"], "only a resume goes on with the run"
    assert {one["mode"] for one in asked} == {"offline"}
    assert runs[0].logged == [{"rl/step": 4, "rl/reward": 0.5}, {"eval/step": 4, "eval/correct": 0.25}]
    assert ("rl/*", "rl/step") in runs[0].defined and runs[0].finished
    monkeypatch.setenv("WANDB_API_KEY", "not-a-real-key")
    Log(tmp_path, ("wandb",)).close()
    assert asked[-1]["mode"] == "online"


REAL = """
import json, struct, sys
from pathlib import Path
from hipwright.train.log import Log
folder = Path(sys.argv[1])
with Log(folder, ("wandb", "mlflow")) as log:
    for step in range(3):
        log.metrics("sft", step, {"loss": 1.0 - step / 4})
        log.metrics("rl", step, {"reward": step / 4})
with Log(folder, ("wandb", "mlflow"), resume_step=2) as log:
    log.metrics("rl", 3, {"reward": 0.75})
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=f"sqlite:///{folder.resolve() / 'mlflow.db'}")
runs = client.search_runs([client.get_experiment_by_name("hipwright").experiment_id])
history = {name: [(m.step, m.value) for m in client.get_metric_history(runs[0].info.run_id, name)]
           for name in ("sft/loss", "rl/reward")}
from wandb.proto import wandb_internal_pb2 as pb

def records(data):  # LevelDB's log format behind 7 bytes: blocks of 32 KiB; crc, length, first|last, bytes
    place, whole = 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
        size, part = struct.unpack_from("<HB", data, place + 4)
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if part in (1, 4):
            yield pb.Record.FromString(whole)
            whole = b""

rows, ids = [], set()
for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
    ids.add(path.stem)
    for record in records(path.read_bytes()):
        if record.WhichOneof("record_type") == "history":
            rows.append({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item})
print(json.dumps({"runs": len(runs), "status": runs[0].info.status, "history": history, "rows": rows,
                  "ids": sorted(ids)}))
"""


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_the_real_wandb_and_mlflow_hold_what_was_logged(tmp_path: Path) -> None:
    """In an environment of their own, since their pins conflict with ours."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    repo = Path(__file__).parents[2]
    subprocess.run([python, "-m", "pip", "install", "-q", "wandb", "mlflow", "msgspec"], check=True, timeout=700)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "MLFLOW_"))}
    env |= {"HOME": str(tmp_path), "PYTHONPATH": str(repo / "src"), "WANDB_SILENT": "true"}
    done = subprocess.run([python, "-c", REAL, tmp_path / "run"], env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["runs"] == 1 and seen["status"] == "FINISHED"
    assert seen["history"]["sft/loss"] == [[0, 1.0], [1, 0.75], [2, 0.5]]
    assert seen["history"]["rl/reward"] == [[0, 0.0], [1, 0.25], [2, 0.5], [3, 0.75]]
    rewards = [(row["rl/step"], row["rl/reward"]) for row in seen["rows"] if "rl/reward" in row]
    assert rewards == [(0, 0.0), (1, 0.25), (2, 0.5), (3, 0.75)] and len(seen["ids"]) == 1
