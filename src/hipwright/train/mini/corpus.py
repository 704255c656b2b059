"""Programs for the miniature's training tasks: the engine's own, under schedules drawn uniformly and never timed.

A composition is captured once, on a small shape (its sizes are symbols), in this process: the sources are made here, so
they need no sandbox. Then the engine writes programs for each training shape, half of them for any shape and half for
the captured one alone, which a shape that was never seen makes wrong. Left out for their length: rows laid out in
columns, and blocks that share a row. Nothing is labelled by speed. The whole is drawn from the seed.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hipwright.capture.graph import Graph
from hipwright.dataset.workers import Pool
from hipwright.engine import space, write
from hipwright.engine.knobs import KNOBS
from hipwright.engine.rewrite.specialise import specialise
from hipwright.engine.version import source_key
from hipwright.errors import BadInput, HipwrightError
from hipwright.llm.compact import shortened
from hipwright.records import Record
from hipwright.train.mini.tasks import CORPUS, SCALES, Composition, Grammar
from hipwright.train.records import TrainingProblem

LINES, MANIFEST = "corpus.jsonl.xz", "corpus.json"
CAPTURED = (48, 80)
"""Rows and columns of the capture: neither is a size of any task."""
DRAWS = 3  # schedules drawn for each program that is wanted: in a small space many are alike
LONGEST = 3600  # characters of a short program
LONG = {"map": ("columns",), "cooperative": (True,)}
"""Structures that are not drawn, by the first part of the choice's name: their programs do not fit a small context."""


class CorpusSettings(Record, frozen=True, kw_only=True):
    """What decides a corpus. tasks: of training; shapes: tasks of each composition; programs: wanted of each task."""

    seed: int = 0
    scale: str = "gpu"
    tasks: int = 6400
    shapes: int = 1
    programs: int = 8


class CorpusLine(Record, frozen=True, kw_only=True):
    """A task with its programs in the short form (llm/compact.py)."""

    operators: tuple[str, ...]
    dtype: str
    shape: tuple[int, int]
    programs: tuple[str, ...]

    @property
    def problem(self) -> TrainingProblem:
        """The task."""
        return Composition(self.operators, self.dtype).problem(self.shape, "train")


@dataclass(frozen=True)
class Corpus:
    """Lines with what they were made from."""

    lines: tuple[CorpusLine, ...]
    manifest: dict[str, Any]

    @property
    def programs(self) -> int:
        """How many there are."""
        return sum(len(line.programs) for line in self.lines)


@dataclass(frozen=True)
class _Job:
    composition: Composition
    shapes: tuple[tuple[int, int], ...]
    settings: CorpusSettings


def build(settings: CorpusSettings, folder: Path, *, workers: int = 1) -> Corpus:
    """Make a corpus in `folder`, or read the one that is there. workers: processes.

    BadInput where the folder holds a corpus of other settings.
    """
    if (folder / MANIFEST).exists():
        corpus = load(folder)
        if corpus.manifest["settings"] != _plain(settings):
            raise BadInput(f"{folder} holds a corpus of other settings", hint="choose another folder")
        return corpus
    made: dict[Composition, tuple[CorpusLine, ...]] = {}
    counts: Counter[str] = Counter()
    jobs = list(_jobs(settings))
    pool: Pool[_Job, tuple[tuple[CorpusLine, ...], Counter[str]]] = Pool(max(1, workers), _ready, _write)
    for job, result in pool.run(jobs):
        if isinstance(result, HipwrightError):
            counts[f"not captured: {result.message[:120]}"] += 1
            continue
        made[job.composition] = result[0]
        counts += result[1]
    corpus = Corpus(tuple(line for job in jobs for line in made.get(job.composition, ())), _manifest(settings, counts))
    save(corpus, folder)
    return corpus


def _manifest(settings: CorpusSettings, counts: Counter[str]) -> dict[str, Any]:
    return {"settings": _plain(settings), "engine": source_key(), "counts": dict(sorted(counts.items()))}


def _plain(settings: CorpusSettings) -> dict[str, Any]:
    return dict(msgspec.to_builtins(settings))


def _jobs(settings: CorpusSettings) -> Iterator[_Job]:
    grammar = Grammar(settings.seed, SCALES[settings.scale])
    shapes, source = grammar.scale.shapes(CORPUS), grammar.compositions("train")
    for number in range(-(-settings.tasks // settings.shapes)):
        composition = next(source)
        drawn = random.Random(f"shapes {settings.seed} {number}").sample(shapes, min(settings.shapes, len(shapes)))
        yield _Job(composition, tuple(sorted(drawn)), settings)


# ---------------------------------------------------------------- in the workers


@contextlib.contextmanager
def _ready() -> Iterator[None]:
    """A worker computes nothing large: one thread each."""
    import torch

    torch.set_num_threads(1)
    yield


def _write(ready: None, job: _Job) -> tuple[tuple[CorpusLine, ...], Counter[str]]:
    """The lines of a composition, and what became of the draws."""
    graph = captured(job.composition)
    counts: Counter[str] = Counter()
    lines = []
    for shape in job.shapes:
        rng = random.Random(f"schedules {job.settings.seed} {job.composition} {shape}")
        programs = list(schedules(at_shape(graph, shape), rng, job.settings.programs, counts))
        counts["tasks"] += 1
        counts["programs"] += len(programs)
        made = job.composition
        lines.append(CorpusLine(operators=made.operators, dtype=made.dtype, shape=shape, programs=tuple(programs)))
    return tuple(lines), counts


def captured(composition: Composition) -> Graph:
    """The graph of a composition, for any shape. Raises TaskError where it cannot be captured."""
    from hipwright.capture.forward import capture

    names: dict[str, Any] = {}
    exec(compile(composition.source(CAPTURED), "<a task of the miniature>", "exec"), names)  # made by tasks.py
    return Graph.from_dict(capture(names["Model"](), names["get_inputs"]()))


def at_shape(graph: Graph, shape: tuple[int, int]) -> Graph:
    """The graph as if it had been captured at (rows, columns): a symbol's hint is the size it had."""
    sizes = dict(zip(CAPTURED, shape, strict=True))
    symbols = tuple(msgspec.structs.replace(s, hint=sizes[s.hint]) for s in graph.symbols)
    return msgspec.structs.replace(graph, symbols=symbols)


def schedules(graph: Graph, rng: random.Random, count: int, counts: Counter[str]) -> Iterator[str]:
    """Up to `count` different short programs of a graph, drawn uniformly."""
    forms = (graph, specialise(graph))
    seen: set[str] = set()
    for _ in range(count * DRAWS):
        if len(seen) >= count:
            return
        form = rng.choice(forms)
        text = shortened(write(form, drawn(form, rng)))
        if len(text) > LONGEST:
            counts["too long"] += 1
        elif text not in seen:
            seen.add(text)
            yield text


def drawn(graph: Graph, rng: random.Random) -> dict[str, Any]:
    """Every choice of the engine, uniformly; knobs that the structure does not have are ignored by `write`."""
    choices: dict[str, Any] = {}
    for key, choice in sorted(space(graph).items()):
        if choice.kind == "structure":
            choices[key] = rng.choice(options(key, choice.options))
    for key, (_, values, _) in KNOBS.items():
        choices[key] = rng.choice(values)
    return choices | {"fuse": True, "wide": False, "exact": False}


def options(key: str, values: Sequence[Any]) -> list[Any]:
    """What is drawn from, of a choice's options."""
    long = LONG.get(key.partition(":")[0], ())
    return [value for value in values if value not in long]


# ---------------------------------------------------------------- files


def save(corpus: Corpus, folder: Path) -> None:
    """Write a corpus: the lines, and last the manifest, without which there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    text = b"".join(msgspec.json.encode(line) + b"\n" for line in corpus.lines)
    (folder / LINES).write_bytes(lzma.compress(text, preset=6))
    (folder / MANIFEST).write_text(json.dumps(corpus.manifest, indent=1) + "\n", encoding="utf-8")


def copy(made: Path, folder: Path) -> None:
    """Take over a corpus that was made elsewhere. BadInput where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for name in (LINES, MANIFEST):
            shutil.copyfile(made / name, folder / name)
    except OSError as error:
        raise BadInput(f"{made} holds no corpus of the miniature: {error}", hint="let it be made anew") from None


def load(folder: Path) -> Corpus:
    """Read a corpus. BadInput where there is none."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        text = lzma.decompress((folder / LINES).read_bytes())
    except (OSError, ValueError, lzma.LZMAError) as error:
        raise BadInput(f"{folder} holds no corpus of the miniature: {error}", hint="let it be made anew") from None
    return Corpus(tuple(msgspec.json.decode(line, type=CorpusLine) for line in text.splitlines()), manifest)
