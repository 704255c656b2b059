"""The stages of the miniature: corpus, tokenizer, SFT, arms, evaluation. A stage is done when its files exist.

    FOLDER/run.json                        settings
           corpus/, corpus-check.json      tasks with programs, and the verdicts on a sample of the programs
           seed-0/base, sft, grpo, ...     models for --llm local:PATH
           seed-0/work/sft, grpo, ...      training: checkpoints, metrics.jsonl, samples.jsonl
           evaluation/, evaluation.json    samples, verdicts, the figures
           report.html

A call runs for up to `minutes`. It is repeated with the same arguments until the result is `finished`, also after a
kill.
"""

from __future__ import annotations

import fcntl
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from hipwright.device.topology import choose
from hipwright.errors import BadInput
from hipwright.events import Listener, silent
from hipwright.report import train_page
from hipwright.targets import TARGETS
from hipwright.train.judging.protocols import ProgramJudge
from hipwright.train.mini import evaluate, model
from hipwright.train.mini.form import CompactForm, read
from hipwright.train.mini.mini_run import CHECK, MiniRun, PieceOver
from hipwright.train.mini.settings import ARMS, BASE, CONTINUED, RFT, SFT, MiniSettings
from hipwright.train.records import TrainingProblem
from hipwright.train.rl import checkpoint
from hipwright.train.rl.arms import train_rft
from hipwright.train.rl.imitation import sft_loop
from hipwright.train.rl.loop import train_rl
from hipwright.train.rl.packing import Pair
from hipwright.train.rl.policy import HFPolicy
from hipwright.train.rl.training import LoopResult

RUN, EVALUATION, ACCOUNT, LOCK = "run.json", "evaluation.json", "account.json", ".lock"
PARSED_TASKS = 32
"""Tasks of the corpus whose samples are parsed during SFT."""


def run(
    folder: Path,
    settings: MiniSettings,
    *,
    resume: bool = False,
    listener: Listener = silent,
    minutes: float | None = None,
    judge: Callable[[], ProgramJudge] | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Runs the stages for up to `minutes`; returns {"finished", "folder", "models": {seed: {arm: path}}, "evaluation"}.

    judge: makes another judge than this machine's. seed: train one of the settings' seeds alone and judge its samples,
    without computing the figures; such calls may run at the same time in one folder, each on its own GPU.
    Raises BadInput where the folder holds a run of other settings, or any run without `resume`; DeviceError where there
    is no GPU of the target.
    """
    if seed is not None and seed not in settings.seeds:
        raise BadInput(f"this run has no seed {seed}", hint=f"seeds: {', '.join(map(str, settings.seeds))}")
    if judge is None and TARGETS.is_gpu(settings.target):
        choose("all", settings.target)  # raises before minutes are spent on a corpus
    folder.mkdir(parents=True, exist_ok=True)
    _limit_threads()
    mini = MiniRun(folder, settings, listener, minutes, judge)
    finished = True
    with mini.stack:
        try:
            with folder_lock(folder):  # shared by all seeds
                _claim(folder, settings, resume)
                _check_corpus(mini)
                _ = mini.tokenizer
            for one in settings.seeds if seed is None else (seed,):
                _train_seed(mini, one)
            if seed is None:
                _evaluate(mini)
                train_page.write(folder)
            else:
                evaluate.judge_samples(mini, _models(mini, (seed,)), f"-{seed}")
        except PieceOver:
            finished = False
    return _summary(mini, finished)


def _limit_threads() -> None:
    """Limits torch to one thread without a GPU: the model is tiny, and the judge's processes need the cores."""
    import torch

    if not torch.cuda.is_available():
        torch.set_num_threads(1)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """A block that one call at a time enters for this folder."""
    with (folder / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _claim(folder: Path, settings: MiniSettings, resume: bool) -> None:
    """Writes the run's settings to the folder, or compares them. Raises BadInput as `run` does."""
    path, plain = folder / RUN, json.loads(msgspec.json.encode(settings))
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        if not resume:
            raise BadInput(f"{folder} already holds a run", hint="--resume continues it, or choose another --out")
        if known["settings"] != plain:
            raise BadInput(f"{folder} holds a run of other settings", hint="give the same, or another --out")
        return
    _write(path, {"recipe": "mini", "target": settings.target, "settings": plain})


def _summary(mini: MiniRun, finished: bool) -> dict[str, Any]:
    done = {
        str(seed): {
            name: str(mini.model_folder(seed, name))
            for name in (BASE, SFT, *mini.settings.arms)
            if (mini.model_folder(seed, name) / model.META).exists()
        }
        for seed in mini.settings.seeds
    }
    made = mini.folder / EVALUATION
    return {
        "finished": finished,
        "folder": str(mini.folder),
        "models": done,
        "evaluation": str(made) if made.exists() else None,
    }


def _write(path: Path, data: Mapping[str, Any]) -> None:
    """Writes JSON atomically."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(dict(data), indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


# ---------------------------------------------------------------- the corpus


def _check_corpus(mini: MiniRun) -> None:
    """Has one program of each of `checked` tasks judged; wrong programs are excluded from training."""
    path = mini.folder / CHECK
    if path.exists() or not mini.settings.checked:
        return
    mini.minutes_left()
    rng = random.Random("check")
    lines = rng.sample(list(mini.corpus.lines), min(mini.settings.checked, len(mini.corpus.lines)))
    drawn = [(line.problem, rng.choice(line.programs)) for line in lines]
    mini.environment.judge.prefetch([problem for problem, _ in drawn[:8]])
    waiting = [mini.environment.submit(problem, text) for problem, text in drawn]
    counts: Counter[str] = Counter()
    wrong = []
    for (problem, text), future in zip(drawn, waiting, strict=True):
        outcome = future.result()
        counts[outcome.status if outcome.scorable else "infrastructure"] += 1
        if outcome.scorable and not outcome.correct:
            wrong.append({"problem": problem.name, "program": text, "status": outcome.status, "why": outcome.message})
    _write(path, {"checked": len(drawn), "counts": dict(counts), "wrong": wrong})
    mini.notify("checked", programs=len(drawn), wrong=len(wrong))


# ---------------------------------------------------------------- training


def _train_seed(mini: MiniRun, seed: int) -> None:
    """Makes the base model, SFT and the arms of one seed; finished models are skipped."""
    settings = mini.settings
    base = mini.model_folder(seed, BASE)
    if not (base / model.META).exists():
        model.save(
            model.random_model(mini.tokenizer, settings.model, seed), mini.tokenizer, base, {"arm": BASE, "seed": seed}
        )
    if not (mini.model_folder(seed, SFT) / model.META).exists():
        if set(settings.arms) - {CONTINUED}:
            mini.start_warming(mini.problems())
        _save_model(mini, seed, SFT, *_train_sft(mini, seed))
        mini.finish_warming()
    for arm in settings.arms:
        if arm not in ARMS:
            raise BadInput(f"the miniature has no arm {arm!r}", hint=f"arms: {', '.join(ARMS)}")
        if not (mini.model_folder(seed, arm) / model.META).exists():
            _save_model(mini, seed, arm, *_train_arm(mini, seed, arm))


def _save_model(mini: MiniRun, seed: int, name: str, policy: HFPolicy, result: LoopResult) -> None:
    """Saves the model of a finished training, and deletes its checkpoints. Raises PieceOver for an unfinished one."""
    if not result.finished:
        raise PieceOver
    facts = {"arm": name, "seed": seed, "steps": result.step, "minutes": round(result.minutes, 2)}
    if "kept_step" in result.metrics:
        facts["kept_step"] = int(result.metrics["kept_step"])
    model.save(policy.model, mini.tokenizer, mini.model_folder(seed, name), facts)
    policy.release()
    checkpoint.delete(mini.work_folder(seed, name))
    shown = {one: result.metrics[one] for one in ("loss", "reward", "correct", "kept_step") if one in result.metrics}
    mini.notify("trained", arm=name, seed=seed, steps=result.step, minutes=result.minutes, **shown)


def _train_sft(mini: MiniRun, seed: int) -> tuple[HFPolicy, LoopResult]:
    """Trains the SFT model from random weights."""
    policy = _policy(model.random_model(mini.tokenizer, mini.settings.model, seed), mini.tokenizer)
    settings = replace(mini.settings.sft, seed=seed)
    return policy, _imitate(mini, seed, SFT, policy, settings)


def _imitate(mini: MiniRun, seed: int, name: str, policy: HFPolicy, settings: Any) -> LoopResult:
    learn, held = mini.rows
    mini.notify(name, seed=seed, rows=len(learn))
    folder = mini.work_folder(seed, name)

    def figures() -> dict[str, float]:
        return held_figures(policy, mini.form, held, [line.problem for line in mini.corpus.lines[:PARSED_TASKS]])

    with mini.log(folder) as log:
        return sft_loop(policy, learn, settings, folder, log, evaluate=figures, piece_minutes=mini.minutes_left())


def _train_arm(mini: MiniRun, seed: int, arm: str) -> tuple[HFPolicy, LoopResult]:
    """Trains one arm from the SFT model for `arm_minutes`."""
    settings, folder = mini.settings, mini.work_folder(seed, arm)
    network, _ = model.load(mini.model_folder(seed, SFT))
    policy = _policy(network, mini.tokenizer)
    if arm == CONTINUED:
        imitation = replace(settings.continued, seed=seed + 1000, max_minutes=settings.arm_minutes)
        return policy, _imitate(mini, seed, arm, policy, imitation)
    environment: Any = mini.environment
    problems = mini.problems()
    mini.warm_judge(problems)
    mini.start_arm(seed, arm)
    mini.notify(arm, seed=seed)
    train = train_rft if arm == RFT else train_rl
    rl = replace(settings.rl, seed=seed, max_minutes=settings.arm_minutes)
    with mini.log(folder) as log:
        result = train(policy, problems, environment, mini.form, rl, folder, log, piece_minutes=mini.minutes_left())
    if hasattr(environment.judge, "figures"):
        _write(folder / ACCOUNT, environment.judge.figures())
    return policy, result


def _policy(network: Any, tokenizer: Any) -> HFPolicy:
    return HFPolicy(network, end=[tokenizer.eos_token_id], pad=tokenizer.pad_token_id)


def held_figures(
    policy: HFPolicy, form: CompactForm, held: Sequence[Pair], problems: Sequence[TrainingProblem]
) -> dict[str, float]:
    """loss: mean of held-out pairs, nats a token; parsed: the share of one sample for each problem that parses."""
    from hipwright.records import Program

    figures = {}
    if held:
        known = policy.logprobs(list(held[:256]))
        figures["loss"] = -sum(map(sum, known)) / max(sum(map(len, known)), 1)
    prompts = [form.encode(problem) for problem in problems]
    drawn = policy.generate(prompts, samples=1, max_new_tokens=320, temperature=1.0, seed=0)
    good = [isinstance(read(form.decode(one[0].tokens), p), Program) for one, p in zip(drawn, problems, strict=True)]
    return figures | {"parsed": sum(good) / max(len(good), 1)}


# ---------------------------------------------------------------- evaluation


def _evaluate(mini: MiniRun) -> None:
    """Draws and judges samples of every model, and writes evaluation.json."""
    if (mini.folder / EVALUATION).exists():
        return
    judged = evaluate.judge_samples(mini, _models(mini, mini.settings.seeds))
    _write(mini.folder / EVALUATION, evaluate.report(judged, mini.environment.judge))


def _models(mini: MiniRun, seeds: Sequence[int]) -> dict[tuple[str, int], Path]:
    """The models' folders by (arm, seed)."""
    names = (BASE, SFT, *mini.settings.arms)
    models = {(name, seed): mini.model_folder(seed, name) for seed in seeds for name in names}
    mini.notify("evaluation", models=len(models))
    return models
