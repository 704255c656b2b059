"""One call of the miniature: its folder, settings and time limit, and the objects that its stages share."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hipwright.events import Listener, silent
from hipwright.llm.compact import prompt
from hipwright.targets import TARGETS
from hipwright.train.environment import Environment
from hipwright.train.judging.judges import ESTIMATED, LocalJudge
from hipwright.train.judging.protocols import ProgramJudge
from hipwright.train.log import Log, ProgressLog
from hipwright.train.mini import corpus as corpora
from hipwright.train.mini import model
from hipwright.train.mini.form import CompactForm, read
from hipwright.train.mini.settings import MiniSettings
from hipwright.train.mini.tasks import SCALES, Grammar, weight
from hipwright.train.records import TrainingProblem
from hipwright.train.rewards import reward
from hipwright.train.rl.checkpoint import latest_step
from hipwright.train.rl.packing import Pair

CORPUS, CHECK = "corpus", "corpus-check.json"
LEAST_MINUTES = 0.2
"""A call with fewer minutes left starts no further stage."""
CALL_LIMIT_S = 3.0
"""Limit of one call of a program on a GPU. Kernels take microseconds, and a program that hangs delays all timings."""

SHARED_HOSTS = 6
"""Processes on a GPU that the tasks' references share; the tasks are generated here, so they trust each other."""


class PieceOver(Exception):
    """The minutes of this call are used; finished work is kept."""


@dataclass
class MiniRun:
    """One call. minutes: its limit; judge: makes another judge than this machine's; began: in monotonic seconds."""

    folder: Path
    settings: MiniSettings
    listener: Listener = silent
    minutes: float | None = None
    judge: Callable[[], ProgramJudge] | None = None
    began: float = field(default_factory=time.monotonic)
    stack: ExitStack = field(default_factory=ExitStack)
    _warming: Future[None] | None = None

    def minutes_left(self) -> float | None:
        """The minutes that are left; None: no limit. Raises PieceOver where there are too few for a stage."""
        if self.minutes is None:
            return None
        left = self.minutes - (time.monotonic() - self.began) / 60
        if left < LEAST_MINUTES:
            raise PieceOver
        return left

    def notify(self, stage: str, **data: Any) -> None:
        """Sends an event to the listener."""
        self.listener("mini", {"stage": stage, **data})

    # ---------------------------------------------------------------- objects of several stages

    @cached_property
    def corpus(self) -> corpora.Corpus:
        """The corpus: read, copied from `corpus_folder`, or built."""
        folder = self.folder / CORPUS
        if self.settings.corpus_folder and not (folder / corpora.MANIFEST).exists():
            corpora.copy(Path(self.settings.corpus_folder), folder)
        self.notify("corpus")
        workers = max(1, len(os.sched_getaffinity(0)) - 1)
        return corpora.build(self.settings.corpus, folder, workers=workers)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, the same for all seeds: read, or trained on the corpus."""
        place = self.folder / "tokenizer"
        if not (place / "tokenizer_config.json").exists():
            self.notify("tokenizer")
            texts = [text for line in self.corpus.lines for text in (prompt(line.problem.source), *line.programs)]
            temporary = self.folder / "tokenizer.writing"
            shutil.rmtree(temporary, ignore_errors=True)
            model.train_tokenizer(texts, self.settings.model.vocabulary).save_pretrained(str(temporary))
            temporary.rename(place)
        return model.load_tokenizer(place)

    @cached_property
    def form(self) -> CompactForm:
        """The form of prompts and programs as tokens."""
        return CompactForm(self.tokenizer)

    @cached_property
    def rows(self) -> tuple[list[Pair], list[Pair]]:
        """(training pairs, held-out pairs), as tokens, without pairs that exceed the context or were found wrong."""
        lines, wrong = self.corpus.lines, wrong_programs(self.folder)
        held = set(random.Random("held").sample(range(len(lines)), self.settings.held))
        numbered = [(number, text) for number, line in enumerate(lines) for text in line.programs]
        targets = self.form.targets([text for _, text in numbered])
        problems = [line.problem for line in lines]
        prompts = [self.form.encode(problem) for problem in problems]
        split: tuple[list[Pair], list[Pair]] = ([], [])
        for (number, text), tokens in zip(numbered, targets, strict=True):
            fits = len(prompts[number]) + len(tokens) <= self.settings.model.context
            if fits and (problems[number].name, text) not in wrong:
                split[number in held].append((prompts[number], tokens))
        return split

    @cached_property
    def environment(self) -> Environment:
        """The environment of all stages of this call, opened on first use."""
        self.notify("judge")
        made = self.judge() if self.judge else self.local_judge()
        options = {"shaping": self.settings.shaping} if self.settings.shaping else {}
        return self.stack.enter_context(Environment(made, reward(self.settings.reward, **options), read))

    def local_judge(self) -> ProgramJudge:
        """This machine's judge, not opened yet."""
        return LocalJudge(
            judge_targets(self.settings.target),
            limit_s=CALL_LIMIT_S,
            open_tasks=self.settings.open_tasks,
            weigh=weight,
            shared_hosts=SHARED_HOSTS,
        )

    def start_warming(self, problems: Sequence[TrainingProblem]) -> None:
        """Opens these tasks in the background, beside the training that comes before the arms."""
        judge: Any = self.environment.judge
        if hasattr(judge, "warm"):
            self.notify("opening", tasks=len(problems))
            pool = self.stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="warm judge"))
            self._warming = pool.submit(judge.warm, problems)

    def finish_warming(self) -> None:
        """Waits for `start_warming`, so that no arm shares the machine with it."""
        if self._warming is not None:
            self._warming.result()
            self._warming = None

    def warm_judge(self, problems: Sequence[TrainingProblem]) -> None:
        """Opens these tasks before an arm's minutes start; otherwise the first arm would spend its time on it."""
        judge: Any = self.environment.judge
        if hasattr(judge, "warm"):
            self.notify("opening", tasks=len(problems))
            judge.warm(problems)

    def start_arm(self, seed: int, arm: str) -> None:
        """Makes the judge forget the builds and verdicts of earlier arms, and resets its stage times."""
        judge: Any = self.environment.judge
        if hasattr(judge, "start_scope"):
            judge.start_scope(str(self.work_folder(seed, arm).resolve()))

    def problems(self) -> list[TrainingProblem]:
        """The training problems of the arms with a judge."""
        made = self.settings.corpus
        grammar = Grammar(made.seed, SCALES[made.scale])
        return grammar.practice(self.settings.rl_tasks, -(-made.tasks // made.shapes), self.settings.rl_deeper)

    def model_folder(self, seed: int, name: str) -> Path:
        """The folder of a finished model."""
        return self.folder / f"seed-{seed}" / name

    def work_folder(self, seed: int, name: str) -> Path:
        """The folder of a model's training."""
        return self.folder / f"seed-{seed}" / "work" / name

    @contextmanager
    def log(self, folder: Path) -> Iterator[ProgressLog]:
        """The log of a training, truncated to its last checkpoint."""
        step = latest_step(folder)
        with Log(folder, resume_step=-1 if step is None else step) as log:
            yield ProgressLog(log, lambda text: self.listener("mini", {"text": text}))


def judge_targets(target: str) -> tuple[str, ...]:
    """The targets of a judge for a target of the settings."""
    return ESTIMATED if TARGETS.is_host(target) else (target,)


def wrong_programs(folder: Path) -> set[tuple[str, str]]:
    """(task, short program) of each program that the corpus check found wrong."""
    path = folder / CHECK
    found = json.loads(path.read_text(encoding="utf-8"))["wrong"] if path.exists() else []
    return {(one["problem"], one["program"]) for one in found}
