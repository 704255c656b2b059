"""The stages of the miniature: corpus, tokenizer, SFT, arms, evaluation. Each leaves files, and is done when they are.

    FOLDER/run.json                        settings, device, clock
           corpus/, corpus-check.json      pairs of task and programs, and what the verifier said of a sample
           seed-0/base, sft, grpo, ...     checkpoints that --llm local:PATH takes
           seed-0/work/sft, grpo, ...      training: checkpoints, metrics.jsonl, samples.jsonl
           evaluation/, evaluation.json    samples, verdicts, the figures
           report.html

A call goes on for `minutes` and can be repeated with the same arguments until it says `finished`; a call that was
killed is continued in the same way.
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
from hipwright.train.mini.bench import CHECK, MiniRun, PieceOver
from hipwright.train.mini.form import CompactForm, read
from hipwright.train.mini.settings import ARMS, BASE, CONTINUED, RFT, SFT, MiniSettings
from hipwright.train.records import TrainingProblem
from hipwright.train.rl.arms import train_rft
from hipwright.train.rl.imitation import sft_loop
from hipwright.train.rl.loop import train_rl
from hipwright.train.rl.packing import Pair
from hipwright.train.rl.policy import HFPolicy
from hipwright.train.rl.training import LoopResult

RUN, EVALUATION, ACCOUNT, LOCK = "run.json", "evaluation.json", "account.json", ".lock"
SHOWN = 32  # tasks whose samples are parsed while SFT goes on


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
    """All stages, as far as `minutes` go. -> {"finished", "folder", "models": {seed: {arm: path}}, "evaluation"}.

    judge: makes another judge than this machine's. seed: train that one of the settings' seeds alone and have its
    samples judged; the figures are left to a call for all of them. Such calls may share a folder, on a GPU each.
    BadInput where the folder holds a run of other settings, or one and `resume` was not given; DeviceError where there
    is no GPU of the target.
    """
    if seed is not None and seed not in settings.seeds:
        raise BadInput(f"this run has no seed {seed}", hint=f"seeds: {', '.join(map(str, settings.seeds))}")
    if judge is None and TARGETS.is_gpu(settings.target):
        choose("all", settings.target)  # a corpus takes minutes: say now that there is no such GPU
    folder.mkdir(parents=True, exist_ok=True)
    _threads()
    bench = MiniRun(folder, settings, listener, minutes, judge)
    finished = True
    with bench.stack:
        try:
            with alone(folder):  # what all seeds share is made once
                _claim(folder, settings, resume)
                _check(bench)
                _ = bench.words
            for one in settings.seeds if seed is None else (seed,):
                _train(bench, one)
            if seed is None:
                _evaluate(bench)
                train_page.write(folder)
            else:
                evaluate.judged(bench, _models(bench, (seed,)), f"-{seed}")
        except PieceOver:
            finished = False
    return _told(bench, finished)


def _threads() -> None:
    """Without a GPU the model is tiny: it gains nothing from threads, and the judge's processes want the cores."""
    import torch

    if not torch.cuda.is_available():
        torch.set_num_threads(1)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Calls that share the folder wait for one another."""
    with (folder / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _claim(folder: Path, settings: MiniSettings, resume: bool) -> None:
    """The folder is this run's, from its first call to its last."""
    path, plain = folder / RUN, json.loads(msgspec.json.encode(settings))
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        if not resume:
            raise BadInput(f"{folder} already holds a run", hint="--resume goes on with it, or choose another --out")
        if known["settings"] != plain:
            raise BadInput(f"{folder} holds a run of other settings", hint="give the same, or another --out")
        return
    _write(path, {"recipe": "mini", "target": settings.target, "settings": plain})


def _told(bench: MiniRun, finished: bool) -> dict[str, Any]:
    done = {
        str(seed): {
            name: str(bench.place(seed, name))
            for name in (BASE, SFT, *bench.settings.arms)
            if (bench.place(seed, name) / model.META).exists()
        }
        for seed in bench.settings.seeds
    }
    made = bench.folder / EVALUATION
    return {
        "finished": finished,
        "folder": str(bench.folder),
        "models": done,
        "evaluation": str(made) if made.exists() else None,
    }


def _write(path: Path, data: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(dict(data), indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


# ---------------------------------------------------------------- the corpus


def _check(bench: MiniRun) -> None:
    """Have a sample of the corpus judged, a program of a task each; what is wrong is not learnt from."""
    path = bench.folder / CHECK
    if path.exists() or not bench.settings.checked:
        return
    bench.left()
    rng = random.Random("check")
    lines = rng.sample(list(bench.corpus.lines), min(bench.settings.checked, len(bench.corpus.lines)))
    drawn = [(line.problem, rng.choice(line.programs)) for line in lines]
    bench.environment.judge.prefetch([problem for problem, _ in drawn[:8]])
    waiting = [bench.environment.submit(problem, text) for problem, text in drawn]
    counts: Counter[str] = Counter()
    wrong = []
    for (problem, text), future in zip(drawn, waiting, strict=True):
        outcome = future.result()
        counts[outcome.status if outcome.scorable else "infrastructure"] += 1
        if outcome.scorable and not outcome.correct:
            wrong.append({"problem": problem.name, "program": text, "status": outcome.status, "why": outcome.message})
    _write(path, {"checked": len(drawn), "counts": dict(counts), "wrong": wrong})
    bench.say("checked", programs=len(drawn), wrong=len(wrong))


# ---------------------------------------------------------------- training


def _train(bench: MiniRun, seed: int) -> None:
    """Base, SFT, and the arms of one seed; what is there already is skipped."""
    settings = bench.settings
    base = bench.place(seed, BASE)
    if not (base / model.META).exists():
        model.save(model.fresh(bench.words, settings.model, seed), bench.words, base, {"arm": BASE, "seed": seed})
    if not (bench.place(seed, SFT) / model.META).exists():
        _finish(bench, seed, SFT, *_sft(bench, seed))
    for arm in settings.arms:
        if arm not in ARMS:
            raise BadInput(f"the miniature has no arm {arm!r}", hint=f"arms: {', '.join(ARMS)}")
        if not (bench.place(seed, arm) / model.META).exists():
            _finish(bench, seed, arm, *_arm(bench, seed, arm))


def _finish(bench: MiniRun, seed: int, name: str, policy: HFPolicy, result: LoopResult) -> None:
    """Keep the model of a training that is done. Raises PieceOver for one that is not."""
    if not result.finished:
        raise PieceOver
    facts = {"arm": name, "seed": seed, "steps": result.step, "minutes": round(result.minutes, 2)}
    if "kept_step" in result.metrics:
        facts["kept_step"] = int(result.metrics["kept_step"])
    model.save(policy.model, bench.words, bench.place(seed, name), facts)
    told = {one: result.metrics[one] for one in ("loss", "reward", "correct", "kept_step") if one in result.metrics}
    bench.say("trained", arm=name, seed=seed, steps=result.step, minutes=result.minutes, **told)


def _sft(bench: MiniRun, seed: int) -> tuple[HFPolicy, LoopResult]:
    """From random weights to the SFT model."""
    policy = _policy(model.fresh(bench.words, bench.settings.model, seed), bench.words)
    settings = replace(bench.settings.sft, seed=seed)
    return policy, _imitate(bench, seed, SFT, policy, settings)


def _imitate(bench: MiniRun, seed: int, name: str, policy: HFPolicy, settings: Any) -> LoopResult:
    learn, held = bench.rows
    bench.say(name, seed=seed, rows=len(learn))
    folder = bench.work(seed, name)

    def figures() -> dict[str, float]:
        return held_figures(policy, bench.form, held, [line.problem for line in bench.corpus.lines[:SHOWN]])

    with bench.log(folder) as log:
        return sft_loop(policy, learn, settings, folder, log, evaluate=figures, piece_minutes=bench.left())


def _arm(bench: MiniRun, seed: int, arm: str) -> tuple[HFPolicy, LoopResult]:
    """One arm from the SFT model, for its minutes."""
    settings, folder = bench.settings, bench.work(seed, arm)
    network, _ = model.load(bench.place(seed, SFT))
    policy = _policy(network, bench.words)
    if arm == CONTINUED:
        imitation = replace(settings.continued, seed=seed + 1000, max_minutes=settings.arm_minutes)
        return policy, _imitate(bench, seed, arm, policy, imitation)
    environment: Any = bench.environment
    problems = bench.problems()
    bench.warm(problems)
    bench.forget(seed, arm)
    bench.say(arm, seed=seed)
    train = train_rft if arm == RFT else train_rl
    rl = replace(settings.rl, seed=seed, max_minutes=settings.arm_minutes)
    with bench.log(folder) as log:
        result = train(policy, problems, environment, bench.form, rl, folder, log, piece_minutes=bench.left())
    if hasattr(environment.judge, "figures"):
        _write(folder / ACCOUNT, environment.judge.figures())
    return policy, result


def _policy(network: Any, words: Any) -> HFPolicy:
    return HFPolicy(network, end=[words.eos_token_id], pad=words.pad_token_id)


def held_figures(
    policy: HFPolicy, form: CompactForm, held: Sequence[Pair], problems: Sequence[TrainingProblem]
) -> dict[str, float]:
    """Mean loss of held-out pairs, nats a token, and the share of sampled programs that parse."""
    from hipwright.records import Program

    told = {}
    if held:
        known = policy.logprobs(list(held[:256]))
        told["loss"] = -sum(map(sum, known)) / max(sum(map(len, known)), 1)
    prompts = [form.encode(problem) for problem in problems]
    drawn = policy.generate(prompts, samples=1, max_new_tokens=320, temperature=1.0, seed=0)
    good = [isinstance(read(form.decode(one[0].tokens), p), Program) for one, p in zip(drawn, problems, strict=True)]
    return told | {"parsed": sum(good) / max(len(good), 1)}


# ---------------------------------------------------------------- evaluation


def _evaluate(bench: MiniRun) -> None:
    """Samples of every checkpoint, their verdicts, the figures."""
    if (bench.folder / EVALUATION).exists():
        return
    judged = evaluate.judged(bench, _models(bench, bench.settings.seeds))
    _write(bench.folder / EVALUATION, evaluate.report(judged, bench.environment.judge))


def _models(bench: MiniRun, seeds: Sequence[int]) -> dict[tuple[str, int], Path]:
    """By (arm, seed)."""
    names = (BASE, SFT, *bench.settings.arms)
    models = {(name, seed): bench.place(seed, name) for seed in seeds for name in names}
    bench.say("evaluation", models=len(models))
    return models
