"""One call of the miniature: its folder, its settings, how long it may go on, and what its stages share."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
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
from hipwright.train.log import Log, Telling
from hipwright.train.mini import corpus as corpora
from hipwright.train.mini import model
from hipwright.train.mini.form import CompactForm, read
from hipwright.train.mini.settings import MiniSettings
from hipwright.train.mini.tasks import SCALES, Grammar
from hipwright.train.records import TrainingProblem
from hipwright.train.rewards import reward
from hipwright.train.rl.checkpoint import latest_step
from hipwright.train.rl.packing import Pair

CORPUS, CHECK = "corpus", "corpus-check.json"
LEAST_MINUTES = 0.2
"""A piece with less left begins no further stage."""
CALL_LIMIT_S = 3.0
"""Of a program on a GPU: its kernels take microseconds, and one that hangs keeps all others from the clock."""

SHARED_HOSTS = 6
"""The tasks are made here, so they trust each other: their references share so many processes on a GPU."""


class PieceOver(Exception):
    """The minutes of this call are used; what is done is kept."""


@dataclass
class MiniRun:
    """One call: where, what, and until when. judge: opens another judge than this machine's."""

    folder: Path
    settings: MiniSettings
    listener: Listener = silent
    minutes: float | None = None
    judge: Callable[[], ProgramJudge] | None = None
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
        made = self.judge() if self.judge else self.local()
        return self.stack.enter_context(Environment(made, reward(self.settings.reward), read))

    def local(self) -> ProgramJudge:
        """This machine's judge, not opened yet."""
        return LocalJudge(
            targets(self.settings.target),
            limit_s=CALL_LIMIT_S,
            open_tasks=self.settings.open_tasks,
            shared_hosts=SHARED_HOSTS,
        )

    def warm(self, problems: Sequence[TrainingProblem]) -> None:
        """Have these tasks open before a clock runs: the first arm would pay for it, and the next profit."""
        judge: Any = self.environment.judge
        if hasattr(judge, "warm"):
            self.say("opening", tasks=len(problems))
            judge.warm(problems)

    def forget(self, seed: int, arm: str) -> None:
        """An arm does not profit from what an earlier one had built or judged, and its account begins now."""
        judge: Any = self.environment.judge
        if hasattr(judge, "begin"):
            judge.begin(str(self.work(seed, arm).resolve()))

    def problems(self) -> list[TrainingProblem]:
        """What the arms with a judge answer."""
        made = self.settings.corpus
        grammar = Grammar(made.seed, SCALES[made.scale])
        return grammar.practice(self.settings.rl_tasks, -(-made.tasks // made.shapes))

    def place(self, seed: int, name: str) -> Path:
        """Where a checkpoint lies when it is done."""
        return self.folder / f"seed-{seed}" / name

    def work(self, seed: int, name: str) -> Path:
        """Where it is trained."""
        return self.folder / f"seed-{seed}" / "work" / name

    @contextmanager
    def log(self, folder: Path) -> Iterator[Telling]:
        """The log of a training, cut back to its last checkpoint."""
        step = latest_step(folder)
        with Log(folder, resume_step=-1 if step is None else step) as log:
            yield Telling(log, lambda text: self.listener("mini", {"text": text}))


def targets(target: str) -> tuple[str, ...]:
    """What a judge is asked for."""
    return ESTIMATED if TARGETS.is_host(target) else (target,)


def wrong_programs(folder: Path) -> set[tuple[str, str]]:
    """(task, short program) of those that the check found wrong."""
    path = folder / CHECK
    found = json.loads(path.read_text(encoding="utf-8"))["wrong"] if path.exists() else []
    return {(one["problem"], one["program"]) for one in found}
