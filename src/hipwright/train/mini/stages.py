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

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from hipwright.errors import BadInput
from hipwright.events import Listener, silent
from hipwright.llm.compact import prompt
from hipwright.report import train_page
from hipwright.train.environment import Environment
from hipwright.train.judges import Judge, LocalJudge
from hipwright.train.log import Log
from hipwright.train.mini import corpus as corpora
from hipwright.train.mini import evaluate, model
from hipwright.train.mini.form import CompactForm, read
from hipwright.train.mini.settings import ARMS, BASE, CONTINUED, RFT, SFT, Settings
from hipwright.train.mini.tasks import SCALES
from hipwright.train.records import Problem
from hipwright.train.rewards import reward
from hipwright.train.rl.arms import train_rft
from hipwright.train.rl.checkpoint import latest_step
from hipwright.train.rl.imitation import sft_loop
from hipwright.train.rl.loop import train_rl
from hipwright.train.rl.packing import Pair
from hipwright.train.rl.policy import HFPolicy
from hipwright.train.rl.training import Result

RUN, CORPUS, CHECK, EVALUATION, ACCOUNT = "run.json", "corpus", "corpus-check.json", "evaluation.json", "account.json"
LEAST_MINUTES = 0.2
"""A piece with less left begins no further stage."""
SHOWN = 32  # tasks whose samples are parsed while SFT goes on


class PieceOver(Exception):
    """The minutes of this call are used; what is done is kept."""


@dataclass
class Bench:
    """One call: where, what, and until when. judge: opens another judge than this machine's."""

    folder: Path
    settings: Settings
    listener: Listener = silent
    minutes: float | None = None
    judge: Callable[[], Judge] | None = None
    began: float = field(default_factory=time.monotonic)
    stack: ExitStack = field(default_factory=ExitStack)

    def left(self) -> float | None:
        """Minutes of this call that are left; None: no limit. Raises PieceOver when they are used."""
        if self.minutes is None:
            return None
        left = self.minutes - (time.monotonic() - self.began) / 60
        if left < LEAST_MINUTES:
            raise PieceOver
        return left

    def say(self, stage: str, **data: Any) -> None:
        """Tell the listener."""
        self.listener("mini", {"stage": stage, **data})

    # ---------------------------------------------------------------- what stages share

    @cached_property
    def corpus(self) -> corpora.Corpus:
        """Read, made, or copied from where it was made."""
        folder = self.folder / CORPUS
        if self.settings.corpus_folder and not (folder / corpora.MANIFEST).exists():
            corpora.copy(Path(self.settings.corpus_folder), folder)
        self.say("corpus")
        workers = max(1, len(os.sched_getaffinity(0)) - 1)
        return corpora.build(self.settings.corpus, folder, workers=workers)

    @cached_property
    def words(self) -> Any:
        """The tokenizer, the same for all seeds."""
        place = self.folder / "tokenizer"
        if not (place / "tokenizer_config.json").exists():
            self.say("tokenizer")
            texts = [text for line in self.corpus.lines for text in (prompt(line.problem.source), *line.programs)]
            beside = self.folder / "tokenizer.writing"
            shutil.rmtree(beside, ignore_errors=True)
            model.tokenizer(texts, self.settings.model.vocabulary).save_pretrained(str(beside))
            beside.rename(place)
        return model.load_words(place)

    @cached_property
    def form(self) -> CompactForm:
        """Prompts and programs as tokens."""
        return CompactForm(self.words)

    @cached_property
    def rows(self) -> tuple[list[Pair], list[Pair]]:
        """(pairs to learn from, held-out ones), as tokens; a pair that the context does not hold is left out."""
        lines, wrong = self.corpus.lines, wrong_programs(self.folder)
        held = set(random.Random("held").sample(range(len(lines)), self.settings.held))
        numbered = [(number, text) for number, line in enumerate(lines) for text in line.programs]
        targets = self.form.targets([text for _, text in numbered])
        problems = [line.problem for line in lines]
        prompts = [self.form.encode(problem) for problem in problems]
        split: tuple[list[Pair], list[Pair]] = ([], [])
        for (number, text), said in zip(numbered, targets, strict=True):
            fits = len(prompts[number]) + len(said) <= self.settings.model.context
            if fits and (problems[number].name, text) not in wrong:
                split[number in held].append((prompts[number], said))
        return split

    @cached_property
    def environment(self) -> Environment:
        """One judge for all stages of this call, opened when it is first needed."""
        self.say("judge")
        made = self.judge() if self.judge else LocalJudge(targets(self.settings.target))
        return self.stack.enter_context(Environment(made, reward(self.settings.reward), read))

    def problems(self) -> list[Problem]:
        """What the arms with a judge answer: tasks of the corpus."""
        least = SCALES[self.settings.corpus.scale].judged
        lines = [line for line in self.corpus.lines if line.shape[0] * line.shape[1] >= least]
        random.Random("tasks of the arms").shuffle(lines)
        return [line.problem for line in lines[: self.settings.rl_tasks]]

    def place(self, seed: int, name: str) -> Path:
        """Where a checkpoint lies when it is done."""
        return self.folder / f"seed-{seed}" / name

    def work(self, seed: int, name: str) -> Path:
        """Where it is trained."""
        return self.folder / f"seed-{seed}" / "work" / name

    def log(self, folder: Path) -> Log:
        """The log of a training, cut back to its last checkpoint."""
        step = latest_step(folder)
        return Log(folder, resume_step=-1 if step is None else step)


def targets(target: str) -> tuple[str, ...]:
    """What a judge is asked for."""
    return ("cpu", "gfx942") if target == "cpu" else (target,)


def run(
    folder: Path,
    settings: Settings,
    *,
    resume: bool = False,
    listener: Listener = silent,
    minutes: float | None = None,
    judge: Callable[[], Judge] | None = None,
) -> dict[str, Any]:
    """All stages, as far as `minutes` go. -> {"finished", "folder", "models": {seed: {arm: path}}, "evaluation"}.

    judge: makes another judge than this machine's. BadInput where the folder holds a run of other settings, or one and
    `resume` was not given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder, settings, resume)
    _threads()
    bench = Bench(folder, settings, listener, minutes, judge)
    finished = True
    with bench.stack:
        try:
            _check(bench)
            for seed in settings.seeds:
                _train(bench, seed)
            _evaluate(bench)
            train_page.write(folder)
        except PieceOver:
            finished = False
    return _told(bench, finished)


def _threads() -> None:
    """Without a GPU the model is tiny: it gains nothing from threads, and the judge's processes want the cores."""
    import torch

    if not torch.cuda.is_available():
        torch.set_num_threads(1)


def _claim(folder: Path, settings: Settings, resume: bool) -> None:
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


def _told(bench: Bench, finished: bool) -> dict[str, Any]:
    done = {
        str(seed): {
            name: str(bench.place(seed, name))
            for name in (BASE, SFT, *bench.settings.arms)
            if (bench.place(seed, name) / model.META).exists()
        }
        for seed in bench.settings.seeds
    }
    return {"finished": finished, "folder": str(bench.folder), "models": done,
            "evaluation": str(bench.folder / EVALUATION) if finished else None}  # fmt: skip


def _write(path: Path, data: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(dict(data), indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


# ---------------------------------------------------------------- the corpus


def _check(bench: Bench) -> None:
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


def wrong_programs(folder: Path) -> set[tuple[str, str]]:
    """(task, short program) of those that the check found wrong."""
    path = folder / CHECK
    found = json.loads(path.read_text(encoding="utf-8"))["wrong"] if path.exists() else []
    return {(one["problem"], one["program"]) for one in found}


# ---------------------------------------------------------------- training


def _train(bench: Bench, seed: int) -> None:
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


def _finish(bench: Bench, seed: int, name: str, policy: HFPolicy, result: Result) -> None:
    """Keep the model of a training that is done. Raises PieceOver for one that is not."""
    if not result.finished:
        raise PieceOver
    facts = {"arm": name, "seed": seed, "steps": result.step, "minutes": round(result.minutes, 2)}
    model.save(policy.model, bench.words, bench.place(seed, name), facts)
    bench.say("trained", **result.metrics | {"arm": name, "seed": seed, "steps": result.step})


def _sft(bench: Bench, seed: int) -> tuple[HFPolicy, Result]:
    """From random weights to the SFT model."""
    policy = _policy(model.fresh(bench.words, bench.settings.model, seed), bench.words)
    settings = replace(bench.settings.sft, seed=seed)
    return policy, _imitate(bench, seed, SFT, policy, settings)


def _imitate(bench: Bench, seed: int, name: str, policy: HFPolicy, settings: Any) -> Result:
    learn, held = bench.rows
    bench.say(name, seed=seed, rows=len(learn))
    folder = bench.work(seed, name)

    def figures() -> dict[str, float]:
        return held_figures(policy, bench.form, held, [line.problem for line in bench.corpus.lines[:SHOWN]])

    with bench.log(folder) as log:
        return sft_loop(policy, learn, settings, folder, log, evaluate=figures, piece_minutes=bench.left())


def _arm(bench: Bench, seed: int, arm: str) -> tuple[HFPolicy, Result]:
    """One arm from the SFT model, for its minutes."""
    settings, folder = bench.settings, bench.work(seed, arm)
    network, _ = model.load(bench.place(seed, SFT))
    policy = _policy(network, bench.words)
    if arm == CONTINUED:
        imitation = replace(settings.continued, seed=seed + 1000, max_minutes=settings.arm_minutes)
        return policy, _imitate(bench, seed, arm, policy, imitation)
    environment: Any = bench.environment
    _forget(environment.judge)
    bench.say(arm, seed=seed)
    train = train_rft if arm == RFT else train_rl
    rl = replace(settings.rl, seed=seed, max_minutes=settings.arm_minutes)
    with bench.log(folder) as log:
        result = train(
            policy, bench.problems(), environment, bench.form, rl, folder, log, piece_minutes=bench.left()
        )  # fmt: skip
    if hasattr(environment.judge, "figures"):
        _write(folder / ACCOUNT, environment.judge.figures())
    return policy, result


def _forget(judge: Any) -> None:
    """No arm profits from what an earlier one had judged."""
    if hasattr(judge, "load") and hasattr(judge, "identity"):
        judge.load({"identity": judge.identity, "counts": {}, "known": {}})


def _policy(network: Any, words: Any) -> HFPolicy:
    return HFPolicy(network, end=[words.eos_token_id], pad=words.pad_token_id)


def held_figures(
    policy: HFPolicy, form: CompactForm, held: Sequence[Pair], problems: Sequence[Problem]
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


def _evaluate(bench: Bench) -> None:
    """Samples of every checkpoint, their verdicts, the figures."""
    if (bench.folder / EVALUATION).exists():
        return
    names = (BASE, SFT, *bench.settings.arms)
    models = {(name, seed): bench.place(seed, name) for seed in bench.settings.seeds for name in names}
    bench.say("evaluation", models=len(models))
    judged = evaluate.judged(bench, models)
    _write(bench.folder / EVALUATION, evaluate.report(judged, bench.environment.judge))
