"""The whole path on the CPU: tokenizer to report; in one piece with real verdicts, and in pieces."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Self

import pytest
from msgspec.structs import replace

from hipwright.device import topology
from hipwright.errors import BadInput, DeviceError
from hipwright.records import Evaluation, Program
from hipwright.train.judging.backends import FLOOR_US, REFERENCE_US
from hipwright.train.mini import corpus, mini_run, model, settings, stages
from hipwright.train.mini.settings import CPU, GPU, MiniSettings, preset
from hipwright.train.records import Clock, TrainingProblem


class MadeUp:
    """A judge that finds every program right, and those with larger blocks faster."""

    device, clock = "", "estimate"
    identity = "made up"

    def __init__(self) -> None:
        self.asked = 0
        self.clock: Clock = "estimate"
        self.begun: list[str] = []

    def start_scope(self, scope: str) -> None:
        self.begun.append(Path(scope).name)

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        self.asked += 1
        done: Future[Evaluation] = Future()
        features = {REFERENCE_US: 20.0, FLOOR_US: 5.0}
        done.set_result(
            Evaluation(
                task=problem.name,
                program=program.key,
                status="pass",
                score=10.0 + len(program.text) % 7,
                score_kind="estimate",
                features=features,
                coverage=1.0,
            )
        )
        return done

    def prefetch(self, problems: Iterable[TrainingProblem]) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *gone: object) -> None:
        pass


def small(corpus_folder: Path) -> MiniSettings:
    """The CPU preset on the corpus that is there, with still fewer steps."""
    kept = corpus.load(corpus_folder).manifest["settings"]
    return replace(
        CPU,
        corpus=corpus.CorpusSettings(**kept),
        corpus_folder=str(corpus_folder),
        rl_tasks=3,
        sft=replace(CPU.sft, steps=40, checkpoint_every=10),
        continued=replace(CPU.continued, steps=4, checkpoint_every=2),
        evaluation=replace(CPU.evaluation, tasks=1, regret=0, samples=2),
    )


@pytest.mark.slow
def test_from_random_weights_to_the_report(corpus_folder: Path, tmp_path: Path) -> None:
    """On the CPU, with the real verifier and static estimates: under three minutes on two busy cores."""
    said: list[str] = []
    chosen = replace(small(corpus_folder), sft=replace(CPU.sft, steps=80), arms=("continued", "grpo"))
    done = stages.run(tmp_path, chosen, listener=lambda kind, data: said.append(str(data.get("stage") or data["text"])))
    assert done["finished"]
    assert [name for name in ("corpus", "checked", "tokenizer", "sft", "grpo", "evaluation") if name not in said] == []
    assert any(line.startswith("sft step ") for line in said) and any(line.startswith("rl step ") for line in said)
    assert json.loads((tmp_path / mini_run.CHECK).read_text())["wrong"] == []
    found = json.loads(Path(done["evaluation"]).read_text())
    assert {row["arm"] for row in found["arms"]} == {"base", "sft", "continued", "grpo"}
    assert {row["split"] for row in found["arms"]} == {"shapes", "compositions", "deeper"}
    assert (found["clock"], found["device"]) == ("estimate", "")
    rl = [json.loads(line) for line in (tmp_path / "seed-0/work/grpo/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in rl] == [1, 2]
    sft = (tmp_path / "seed-0/work/sft/metrics.jsonl").read_text()
    losses = [json.loads(line)["values"] for line in sft.splitlines()]
    assert losses[-2]["loss"] < 0.5 * losses[0]["loss"]
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert sum(path.stat().st_size for path in (tmp_path / "seed-0/grpo").iterdir()) < 1_000_000


@pytest.mark.slow
def test_pieces_come_to_what_one_call_comes_to(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mini_run, "LEAST_MINUTES", 0.0)
    chosen = replace(small(corpus_folder), arm_minutes=60.0, checked=0)
    begun = time.monotonic()
    judge = MadeUp()
    whole = stages.run(tmp_path / "whole", chosen, judge=lambda: judge)
    half = (time.monotonic() - begun) / 120  # minutes: however fast the machine is
    assert judge.begun == ["rft", "grpo"], "an arm began with what another had judged"
    calls, finished = 0, False
    while not finished:
        done = stages.run(tmp_path / "pieces", chosen, resume=True, minutes=half, judge=MadeUp)
        calls, finished = calls + 1, done["finished"]
        assert calls < 40
    assert calls > 1
    one, other = (json.loads((tmp_path / name / stages.EVALUATION).read_text()) for name in ("whole", "pieces"))
    assert one == other
    assert whole["models"].keys() == done["models"].keys() == {"0"}
    evaluated = tmp_path / "pieces" / "evaluation" / "verdicts.jsonl"
    before = evaluated.read_bytes()
    assert stages.run(tmp_path / "pieces", chosen, resume=True, judge=MadeUp)["finished"]
    assert evaluated.read_bytes() == before


@pytest.mark.slow
def test_seeds_side_by_side_come_to_what_one_call_comes_to(corpus_folder: Path, tmp_path: Path) -> None:
    """Each trains and judges on its own, and the call for all has nothing left to ask but for the figures."""
    chosen = replace(small(corpus_folder), seeds=(0, 3), arms=("continued",), checked=0)
    chosen = replace(chosen, sft=replace(chosen.sft, steps=4), continued=replace(chosen.continued, steps=2))
    apart, whole = tmp_path / "apart", tmp_path / "whole"
    for seed in (3, 0):
        done = stages.run(apart, chosen, resume=True, judge=MadeUp, seed=seed)
        assert done["finished"] and not done["evaluation"]
    last = MadeUp()
    assert stages.run(apart, chosen, resume=True, judge=lambda: last)["evaluation"] and last.asked == 0
    stages.run(whole, chosen, judge=MadeUp)
    one, other = (json.loads((folder / stages.EVALUATION).read_text()) for folder in (apart, whole))
    assert one == other and {row["seed"] for row in one["arms"]} == {0, 3, None}
    with pytest.raises(BadInput, match="no seed 1"):
        stages.run(apart, chosen, resume=True, seed=1)


def test_a_missing_gpu_is_told_before_the_corpus_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "find", lambda kind=None: [])
    with pytest.raises(DeviceError, match="no cuda GPU on this machine"):
        stages.run(tmp_path / "mini", GPU)
    assert not (tmp_path / "mini").exists()


def test_a_folder_belongs_to_one_run(corpus_folder: Path, tmp_path: Path) -> None:
    chosen = small(corpus_folder)
    stages._claim(tmp_path, chosen, False)
    stages._claim(tmp_path, chosen, True)
    with pytest.raises(BadInput, match="already holds"):
        stages._claim(tmp_path, chosen, False)
    with pytest.raises(BadInput, match="other settings"):
        stages._claim(tmp_path, replace(chosen, rl_tasks=4), True)


def test_what_the_check_found_wrong_is_not_learnt_from(corpus_folder: Path, tmp_path: Path) -> None:
    chosen = small(corpus_folder)
    line = corpus.load(corpus_folder).lines[0]
    rows = sum(map(len, mini_run.MiniRun(tmp_path, chosen).rows))
    wrong = [{"problem": line.problem.name, "program": line.programs[0]}]
    (tmp_path / mini_run.CHECK).write_text(json.dumps({"wrong": wrong}))
    assert sum(map(len, mini_run.MiniRun(tmp_path, chosen).rows)) == rows - 1


def test_presets() -> None:
    assert preset("cuda") == GPU
    assert preset("rocm").target == "rocm"
    assert preset("cpu").model == model.TINY
    assert GPU.arms == settings.ARMS
    with pytest.raises(BadInput, match="no target"):
        preset("tpu")
