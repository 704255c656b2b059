"""The miniature's evaluation: samples of every model on held-out tasks, where each program is judged once.

    FOLDER/evaluation/samples-ARM-SEED.json   {task: [short programs]}
                      verdicts.jsonl          {"problem", "text", "outcome"}: appended, so a killed call loses little
                      verdicts-SEED.jsonl     verdicts of calls for one seed

Each task is opened once for the answers of all models, since opening a task takes longer than a verdict. Faults of the
machine are not stored, so that the next call judges again.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hipwright.train.log import cut_torn_line
from hipwright.train.mini import model
from hipwright.train.mini.figures import Drawn, Regret, tables
from hipwright.train.mini.regret import grid
from hipwright.train.mini.tasks import HELD_OUT, OF_TRAIN, SCALES, Grammar
from hipwright.train.records import AnswerOutcome, TrainingProblem
from hipwright.train.rl.policy import HFPolicy

if TYPE_CHECKING:
    from hipwright.train.environment import Environment
    from hipwright.train.mini.mini_run import MiniRun

FOLDER, VERDICTS = "evaluation", "verdicts{}.jsonl"
IN_FLIGHT = 8
"""Tasks whose programs are judged at once; as many further ones are being opened."""


class MiniVerdict(msgspec.Struct):
    """A line of a file of verdicts. text: the short program."""

    problem: str
    text: str
    outcome: AnswerOutcome


@dataclass
class JudgedSamples:
    """The input of the figures. drawn: samples by (arm, seed); outcomes: by (task, short program); grids: by task."""

    problems: list[TrainingProblem]
    drawn: dict[tuple[str, int], Drawn]
    outcomes: dict[tuple[str, str], AnswerOutcome]
    grids: dict[str, list[str]]
    environment: Environment
    settings: Any


def problems(mini: MiniRun) -> list[TrainingProblem]:
    """The tasks of all held-out splits, alternating, so that an interrupted call has verdicts of each split."""
    settings = mini.settings
    grammar = Grammar(settings.corpus.seed, SCALES[settings.corpus.scale])
    trained = -(-settings.corpus.tasks // settings.corpus.shapes)
    splits = [grammar.problems(s, settings.evaluation.tasks, trained if s in OF_TRAIN else None) for s in HELD_OUT]
    return [task for turn in zip_longest(*splits) for task in turn if task is not None]


def judge_samples(mini: MiniRun, models: Mapping[tuple[str, int], Path], part: str = "") -> JudgedSamples:
    """Draws and judges the missing samples. part: suffix of the file that verdicts are appended to.

    Raises mini_run.PieceOver when the call's minutes are used.
    """
    tasks = problems(mini)
    drawn = {key: _draw_samples(mini, key, path, tasks) for key, path in models.items()}
    with_grids = part in ("", f"-{mini.settings.seeds[0]}")  # of calls for one seed the first one judges the grids
    grids = grid(tasks, mini.settings.evaluation) if with_grids else {}
    wanted = {
        task.name: list(
            dict.fromkeys([*(t for one in drawn.values() for t in one[task.name]), *grids.get(task.name, ())])
        )
        for task in tasks
    }
    outcomes = _outcomes(mini, tasks, wanted, part)
    return JudgedSamples(tasks, drawn, outcomes, grids, mini.environment, mini.settings)


def report(found: JudgedSamples, judge: Any) -> dict[str, Any]:
    """The content of evaluation.json."""
    best: Regret = {}
    for name, texts in found.grids.items():
        times = [o.time_ms for t in texts if (o := found.outcomes.get((name, t))) and o.correct and o.time_ms]
        if times:
            best[name] = (min(times), len(texts))
    made = tables(
        found.problems, found.drawn, found.outcomes, best, found.environment.reward, found.settings.evaluation
    )
    return {**made, "device": str(judge.device), "clock": str(judge.clock)}


# ---------------------------------------------------------------- drawing


def _draw_samples(mini: MiniRun, key: tuple[str, int], path: Path, tasks: Sequence[TrainingProblem]) -> Drawn:
    """The samples of one model, read from their file or drawn."""
    arm, seed = key
    file = mini.folder / FOLDER / f"samples-{arm}-{seed}.json"
    if file.exists():
        known: Drawn = json.loads(file.read_text(encoding="utf-8"))
        return known
    mini.minutes_left()
    mini.notify("drawing", arm=arm, seed=seed)
    network, tokenizer = model.load(path)
    policy = HFPolicy(network, end=[tokenizer.eos_token_id], pad=tokenizer.pad_token_id)
    settings = mini.settings.evaluation
    prompts = [mini.form.encode(task) for task in tasks]
    answers = policy.generate(
        prompts,
        samples=settings.samples,
        max_new_tokens=mini.settings.rl.max_new_tokens,
        temperature=1.0,
        seed=settings.seed + seed,
    )
    policy.release()  # the judge needs the memory
    found = {
        task.name: [mini.form.decode(one.tokens) for one in some] for task, some in zip(tasks, answers, strict=True)
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(found), encoding="utf-8")
    temporary.replace(file)
    return found


# ---------------------------------------------------------------- judging


def _outcomes(
    mini: MiniRun, tasks: Sequence[TrainingProblem], wanted: Mapping[str, Sequence[str]], part: str
) -> dict[tuple[str, str], AnswerOutcome]:
    """The outcome of every (task, program), from the files and what is judged now."""
    folder = mini.folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / VERDICTS.format(part)
    cut_torn_line(file)
    files = [file] if part else sorted(folder.glob(VERDICTS.format("*")))  # another call may be writing to its file
    known = {(one.problem, one.text): one.outcome for found in files for one in _read(found)}
    waiting: deque[tuple[TrainingProblem, dict[str, Future[AnswerOutcome]]]] = deque()
    missing = [(task, [t for t in wanted[task.name] if (task.name, t) not in known]) for task in tasks]
    missing = [(task, texts) for task, texts in missing if texts]
    with file.open("ab") as stream:
        for number, (task, texts) in enumerate(missing):
            mini.minutes_left()
            mini.environment.judge.prefetch([one for one, _ in missing[number : number + IN_FLIGHT]])
            waiting.append((task, {text: mini.environment.submit(task, text) for text in texts}))
            if len(waiting) >= IN_FLIGHT:
                _store_verdicts(waiting.popleft(), known, stream)
                mini.notify("judged", tasks=number + 1 - len(waiting), of=len(missing))
        while waiting:
            _store_verdicts(waiting.popleft(), known, stream)
    return known


def _store_verdicts(
    one: tuple[TrainingProblem, dict[str, Future[AnswerOutcome]]],
    known: dict[tuple[str, str], AnswerOutcome],
    stream: Any,
) -> None:
    """Waits for a task's verdicts and stores them."""
    task, futures = one
    for text, future in futures.items():
        outcome = future.result()
        known[task.name, text] = outcome
        if outcome.scorable:
            stream.write(msgspec.json.encode(MiniVerdict(task.name, text, outcome)) + b"\n")
    stream.flush()


def _read(file: Path) -> Iterator[MiniVerdict]:
    """The verdicts of a file, without a torn last line."""
    for line in file.read_bytes().splitlines(keepends=True) if file.exists() else ():
        if line.endswith(b"\n"):
            yield msgspec.json.decode(line, type=MiniVerdict)
