"""The stages of the miniature on the CPU, with real verdicts, and interrupted."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Self

import pytest
from msgspec.structs import replace

from hipwright.device import topology
from hipwright.errors import BadInput, DeviceError
from hipwright.records import Evaluation, Program
from hipwright.train.judging.backends import FLOOR_US, REFERENCE_US
from hipwright.train.mini import corpus, evaluate, mini_run, model, settings, stages
from hipwright.train.mini.settings import CPU, GPU, LARGE, MiniSettings, preset
from hipwright.train.mini.tasks import HELD_OUT
from hipwright.train.records import Clock, TrainingProblem
from hipwright.train.rl.training import TrainingRun


class FakeJudge:
    """A judge that passes every program, with an estimate that depends on its text."""

    device, clock = "", "estimate"
    identity = "fake"

    def __init__(self) -> None:
        self.asked = 0
        self.clock: Clock = "estimate"
        self.scopes: list[str] = []
        self.warmed: list[tuple[str, int]] = []  # by thread, and the number of tasks

    def warm(self, problems: Sequence[TrainingProblem]) -> None:
        self.warmed.append((threading.current_thread().name.split("_")[0], len(problems)))

    def start_scope(self, scope: str) -> None:
        self.scopes.append(Path(scope).name)

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
    """The CPU preset with a finished corpus, few steps and short answers."""
    made = corpus.load(corpus_folder).manifest["settings"]
    return replace(
        CPU,
        corpus=corpus.CorpusSettings(**made),
        corpus_folder=str(corpus_folder),
        rl_tasks=3,
        sft=replace(CPU.sft, steps=6, checkpoint_every=2),
        continued=replace(CPU.continued, steps=4, checkpoint_every=2),
        rl=replace(CPU.rl, max_new_tokens=32),
        evaluation=replace(CPU.evaluation, tasks=1, regret=0, samples=1),
    )


@pytest.mark.slow
def test_from_random_weights_to_the_report(corpus_folder: Path, tmp_path: Path) -> None:
    """All stages on the CPU, with the real verifier and static estimates."""
    said: list[str] = []
    chosen = replace(small(corpus_folder), sft=replace(CPU.sft, steps=40), rl=CPU.rl, arms=("grpo",))
    done = stages.run(tmp_path, chosen, listener=lambda kind, data: said.append(str(data.get("stage") or data["text"])))
    assert done["finished"]
    assert [name for name in ("corpus", "checked", "tokenizer", "sft", "grpo", "evaluation") if name not in said] == []
    assert any(line.startswith("sft step ") for line in said) and any(line.startswith("rl step ") for line in said)
    assert json.loads((tmp_path / mini_run.CHECK).read_text())["wrong"] == []
    found = json.loads(Path(done["evaluation"]).read_text())
    assert {row["arm"] for row in found["arms"]} == {"base", "sft", "grpo"}
    assert {row["split"] for row in found["arms"]} == set(HELD_OUT)
    assert [one["level"] for one in found["levels"] if one["arm"] == "sft"] == sorted(
        {one.facts["depth"] for one in evaluate.problems(mini_run.MiniRun(tmp_path, chosen))}
    )
    assert (found["clock"], found["device"]) == ("estimate", "")
    rl = [json.loads(line) for line in (tmp_path / "seed-0/work/grpo/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in rl] == [1, 2]
    sft = (tmp_path / "seed-0/work/sft/metrics.jsonl").read_text()
    losses = [json.loads(line)["values"] for line in sft.splitlines()]
    assert losses[-2]["loss"] < 0.5 * losses[0]["loss"]
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert sum(path.stat().st_size for path in (tmp_path / "seed-0/grpo").iterdir()) < 1_000_000
    assert not list(tmp_path.rglob("checkpoints")), "finished models need none"


class TimeBudget:
    """Ends a call when its time was read `reads` times, whatever the machine's speed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = 0
        monkeypatch.setattr(TrainingRun, "paused", property(lambda run: self.spent()))
        monkeypatch.setattr(mini_run.MiniRun, "minutes_left", lambda run: self.check())

    def spent(self) -> bool:
        self.reads -= 1
        return self.reads < 0

    def check(self) -> None:
        if self.spent():
            raise mini_run.PieceOver


@pytest.mark.slow
def test_several_calls_give_the_result_of_one(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = replace(small(corpus_folder), arm_minutes=60.0, checked=0)
    judge = FakeJudge()
    whole = stages.run(tmp_path / "whole", chosen, judge=lambda: judge)
    assert judge.scopes == ["rft", "grpo"], "each judged arm starts without the verdicts of another"
    main = threading.current_thread().name
    assert judge.warmed == [("warm judge", 3), (main, 3), (main, 3)], "beside SFT, and before each judged arm"
    calls, finished = 0, False
    with monkeypatch.context() as patch:
        budget = TimeBudget(patch)
        while not finished:
            budget.reads = 9
            done = stages.run(tmp_path / "pieces", chosen, resume=True, judge=FakeJudge)
            calls, finished = calls + 1, done["finished"]
            assert calls < 20
    assert calls > 4
    one, other = (json.loads((tmp_path / name / stages.EVALUATION).read_text()) for name in ("whole", "pieces"))
    assert one == other
    assert whole["models"].keys() == done["models"].keys() == {"0"}
    verdicts = tmp_path / "pieces" / "evaluation" / "verdicts.jsonl"
    before = verdicts.read_bytes()
    assert stages.run(tmp_path / "pieces", chosen, resume=True, judge=FakeJudge)["finished"]
    assert verdicts.read_bytes() == before


@pytest.mark.slow
def test_a_call_for_each_seed_gives_the_result_of_one_call(corpus_folder: Path, tmp_path: Path) -> None:
    """After calls for each seed, the call for all seeds judges nothing and computes the figures."""
    chosen = replace(small(corpus_folder), seeds=(0, 3), arms=("continued",), checked=0)
    chosen = replace(chosen, sft=replace(chosen.sft, steps=2), continued=replace(chosen.continued, steps=1))
    apart, whole = tmp_path / "apart", tmp_path / "whole"
    for seed in (3, 0):
        done = stages.run(apart, chosen, resume=True, judge=FakeJudge, seed=seed)
        assert done["finished"] and not done["evaluation"]
    last = FakeJudge()
    assert stages.run(apart, chosen, resume=True, judge=lambda: last)["evaluation"] and last.asked == 0
    stages.run(whole, chosen, judge=FakeJudge)
    one, other = (json.loads((folder / stages.EVALUATION).read_text()) for folder in (apart, whole))
    assert one == other and {row["seed"] for row in one["arms"]} == {0, 3, None}
    with pytest.raises(BadInput, match="no seed 1"):
        stages.run(apart, chosen, resume=True, seed=1)


def test_a_missing_gpu_is_an_error_before_the_corpus_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_programs_that_the_check_found_wrong_are_excluded(corpus_folder: Path, tmp_path: Path) -> None:
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
    assert replace(preset("rocm", "large"), target=LARGE.target) == LARGE
    with pytest.raises(BadInput, match="no target"):
        preset("tpu")
    with pytest.raises(BadInput, match="needs a GPU"):
        preset("cpu", "large")


def test_the_large_size_changes_the_model_and_its_training_alone() -> None:
    same = {"model", "arm_minutes", "sft", "continued", "rl"}
    large, small = LARGE.to_dict(), GPU.to_dict()
    assert {name for name in large if large[name] != small[name]} == same
    assert LARGE.sft.batch_tokens == GPU.sft.batch_tokens and LARGE.corpus == GPU.corpus
    assert LARGE.sft.steps and LARGE.sft.steps % LARGE.sft.checkpoint_every == 0
