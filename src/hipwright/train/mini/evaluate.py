"""The miniature's evaluation: samples of every checkpoint on held-out tasks, each program judged once.

    FOLDER/evaluation/samples-ARM-SEED.json   {task: [short programs]}
                      verdicts.jsonl          {"problem", "text", "outcome"}: appended, so a killed call loses little
                      verdicts-SEED.jsonl     what calls for one seed found

Tasks are walked once, with the answers of all checkpoints together: opening a task costs more than a verdict, and equal
programs of a task are judged once. A verdict that the machine is at fault for is not kept: the next call asks again.
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

from hipwright.train.mini import model
from hipwright.train.mini.figures import Drawn, Regret, tables
from hipwright.train.mini.regret import grid
from hipwright.train.mini.tasks import HELD_OUT, SCALES, Grammar
from hipwright.train.records import AnswerOutcome, TrainingProblem
from hipwright.train.rl.policy import HFPolicy

if TYPE_CHECKING:
    from hipwright.train.environment import Environment
    from hipwright.train.mini.bench import MiniRun

FOLDER, VERDICTS = "evaluation", "verdicts{}.jsonl"
IN_FLIGHT = 8  # tasks whose programs are judged at once, and as many are being opened


class MiniVerdict(msgspec.Struct):
    """One line of VERDICTS. text: the short program."""

    problem: str
    text: str
    outcome: AnswerOutcome


@dataclass
class JudgedSamples:
    """All that the figures are made of. drawn: by (arm, seed); regrets: of the tasks with a schedule grid."""

    problems: list[TrainingProblem]
    drawn: dict[tuple[str, int], Drawn]
    outcomes: dict[tuple[str, str], AnswerOutcome]
    grids: dict[str, list[str]]
    environment: Environment
    settings: Any


def problems(bench: MiniRun) -> list[TrainingProblem]:
    """The tasks of all held-out splits, in turn: a call that is cut short knows something of each."""
    settings = bench.settings
    grammar = Grammar(settings.corpus.seed, SCALES[settings.corpus.scale])
    trained = -(-settings.corpus.tasks // settings.corpus.shapes)
    splits = [grammar.problems(s, settings.evaluation.tasks, trained if s == "shapes" else None) for s in HELD_OUT]
    return [task for turn in zip_longest(*splits) for task in turn if task is not None]


def judged(bench: MiniRun, models: Mapping[tuple[str, int], Path], part: str = "") -> JudgedSamples:
    """Draw and judge what is missing. part: of the name of the file that verdicts are added to.

    Raises bench.PieceOver when the call's minutes are used.
    """
    tasks = problems(bench)
    drawn = {key: _drawn(bench, key, path, tasks) for key, path in models.items()}
    ours = part in ("", f"-{bench.settings.seeds[0]}")  # once is enough
    grids = grid(tasks, bench.settings.evaluation) if ours else {}
    wanted = {
        task.name: list(
            dict.fromkeys([*(t for one in drawn.values() for t in one[task.name]), *grids.get(task.name, ())])
        )
        for task in tasks
    }
    outcomes = _outcomes(bench, tasks, wanted, part)
    return JudgedSamples(tasks, drawn, outcomes, grids, bench.environment, bench.settings)


def report(found: JudgedSamples, judge: Any) -> dict[str, Any]:
    """evaluation.json."""
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


def _drawn(bench: MiniRun, key: tuple[str, int], path: Path, tasks: Sequence[TrainingProblem]) -> Drawn:
    """The samples of one checkpoint, kept in a file."""
    arm, seed = key
    file = bench.folder / FOLDER / f"samples-{arm}-{seed}.json"
    if file.exists():
        known: Drawn = json.loads(file.read_text(encoding="utf-8"))
        return known
    bench.left()
    bench.say("drawing", arm=arm, seed=seed)
    network, words = model.load(path)
    policy = HFPolicy(network, end=[words.eos_token_id], pad=words.pad_token_id)
    settings = bench.settings.evaluation
    prompts = [bench.form.encode(task) for task in tasks]
    answers = policy.generate(
        prompts,
        samples=settings.samples,
        max_new_tokens=bench.settings.rl.max_new_tokens,
        temperature=1.0,
        seed=settings.seed + seed,
    )
    found = {
        task.name: [bench.form.decode(one.tokens) for one in some] for task, some in zip(tasks, answers, strict=True)
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(found), encoding="utf-8")
    beside.replace(file)
    return found


# ---------------------------------------------------------------- judging


def _outcomes(
    bench: MiniRun, tasks: Sequence[TrainingProblem], wanted: Mapping[str, Sequence[str]], part: str
) -> dict[tuple[str, str], AnswerOutcome]:
    """The outcome of every (task, program), from the files and what is judged now."""
    folder = bench.folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / VERDICTS.format(part)
    _mend(file)
    files = [file] if part else sorted(folder.glob(VERDICTS.format("*")))  # another seed's may be written to just now
    known = {(one.problem, one.text): one.outcome for found in files for one in _read(found)}
    waiting: deque[tuple[TrainingProblem, dict[str, Future[AnswerOutcome]]]] = deque()
    missing = [(task, [t for t in wanted[task.name] if (task.name, t) not in known]) for task in tasks]
    missing = [(task, texts) for task, texts in missing if texts]
    with file.open("ab") as stream:
        for number, (task, texts) in enumerate(missing):
            bench.left()
            bench.environment.judge.prefetch([one for one, _ in missing[number : number + IN_FLIGHT]])
            waiting.append((task, {text: bench.environment.submit(task, text) for text in texts}))
            if len(waiting) >= IN_FLIGHT:
                _settle(waiting.popleft(), known, stream)
                bench.say("judged", tasks=number + 1 - len(waiting), of=len(missing))
        while waiting:
            _settle(waiting.popleft(), known, stream)
    return known


def _settle(
    one: tuple[TrainingProblem, dict[str, Future[AnswerOutcome]]],
    known: dict[tuple[str, str], AnswerOutcome],
    stream: Any,
) -> None:
    """Wait for a task's verdicts, and keep them."""
    task, futures = one
    for text, future in futures.items():
        outcome = future.result()
        known[task.name, text] = outcome
        if outcome.scorable:
            stream.write(msgspec.json.encode(MiniVerdict(task.name, text, outcome)) + b"\n")
    stream.flush()


def _mend(file: Path) -> None:
    """Cut a torn last line off."""
    text = file.read_bytes() if file.exists() else b""
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        file.write_bytes(whole)


def _read(file: Path) -> Iterator[MiniVerdict]:
    """The whole lines of a file."""
    for line in file.read_bytes().splitlines(keepends=True) if file.exists() else ():
        if line.endswith(b"\n"):
            yield msgspec.json.decode(line, type=MiniVerdict)
