"""The corpus: the engine's programs for the miniature's training tasks, under uniformly drawn schedules.

A composition is captured once, on a small shape with symbolic sizes. This runs in the process itself, since the sources
are generated here. The engine then writes programs for each training shape: half of them for any shape, half for that
shape alone. Rows laid out in columns and blocks that share a row are left out for their length. No program is timed.
Everything is drawn from the seed.
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
"""Rows and columns of the capture; neither is a size of any task."""
DRAWS = 3
"""Schedules drawn for each wanted program, since many are equal in a small space."""
MAX_CHARACTERS = 3600
"""The longest short program."""
LONG_STRUCTURES = {"map": ("columns",), "cooperative": (True,)}
"""Structures that are not drawn, by the first part of the choice's name: their programs are too long."""


class CorpusSettings(Record, frozen=True, kw_only=True):
    """Settings of a corpus. tasks: of training; shapes: tasks of each composition; programs: wanted of each task."""

    seed: int = 0
    scale: str = "gpu"
    tasks: int = 6400
    shapes: int = 1
    programs: int = 8


class CorpusLine(Record, frozen=True, kw_only=True):
    """A task with its programs in the short form (llm/compact)."""

    operators: tuple[str, ...]
    dtype: str
    shape: tuple[int, int]
    programs: tuple[str, ...]

    @property
    def problem(self) -> TrainingProblem:
        """The task as a training problem."""
        return Composition(self.operators, self.dtype).problem(self.shape, "train")


@dataclass(frozen=True)
class Corpus:
    """The lines of a corpus. manifest: settings, the engine's version, and counts."""

    lines: tuple[CorpusLine, ...]
    manifest: dict[str, Any]


@dataclass(frozen=True)
class _Job:
    composition: Composition
    shapes: tuple[tuple[int, int], ...]
    settings: CorpusSettings


def build(settings: CorpusSettings, folder: Path, *, workers: int = 1) -> Corpus:
    """Makes a corpus in `folder`, or reads the one that is there. workers: processes.

    Raises BadInput where the folder holds a corpus of other settings.
    """
    if (folder / MANIFEST).exists():
        corpus = load(folder)
        if corpus.manifest["settings"] != _plain(settings):
            raise BadInput(f"{folder} holds a corpus of other settings", hint="choose another folder")
        return corpus
    made: dict[Composition, tuple[CorpusLine, ...]] = {}
    counts: Counter[str] = Counter()
    jobs = list(_jobs(settings))
    pool: Pool[_Job, tuple[tuple[CorpusLine, ...], Counter[str]]] = Pool(max(1, workers), _one_thread, _write_lines)
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
def _one_thread() -> Iterator[None]:
    """Limits torch to one thread, since a worker computes only small tensors."""
    import torch

    torch.set_num_threads(1)
    yield


def _write_lines(ready: None, job: _Job) -> tuple[tuple[CorpusLine, ...], Counter[str]]:
    """(the lines of a composition, counts of tasks, programs and dropped draws)."""
    graph = capture_composition(job.composition)
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


def capture_composition(composition: Composition) -> Graph:
    """The graph of a composition, for any shape. Raises TaskError where it cannot be captured."""
    from hipwright.capture.forward import capture

    names: dict[str, Any] = {}
    exec(compile(composition.source(CAPTURED), "<a task of the miniature>", "exec"), names)  # generated by tasks.py
    return Graph.from_dict(capture(names["Model"](), names["get_inputs"]()))


def at_shape(graph: Graph, shape: tuple[int, int]) -> Graph:
    """The graph as if captured at (rows, columns): the hints of its symbols are replaced by these sizes."""
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
        text = shortened(write(form, draw_choices(form, rng)))
        if len(text) > MAX_CHARACTERS:
            counts["too long"] += 1
        elif text not in seen:
            seen.add(text)
            yield text


def draw_choices(graph: Graph, rng: random.Random) -> dict[str, Any]:
    """A value for every choice of the engine, uniformly; `write` ignores knobs that the structure does not have."""
    choices: dict[str, Any] = {}
    for key, choice in sorted(space(graph).items()):
        if choice.kind == "structure":
            choices[key] = rng.choice(drawn_options(key, choice.options))
    for key, (_, values, _) in KNOBS.items():
        choices[key] = rng.choice(values)
    return choices | {"fuse": True, "wide": False, "exact": False}


def drawn_options(key: str, values: Sequence[Any]) -> list[Any]:
    """The options of a choice that schedules are drawn from."""
    long = LONG_STRUCTURES.get(key.partition(":")[0], ())
    return [value for value in values if value not in long]


# ---------------------------------------------------------------- files


def save(corpus: Corpus, folder: Path) -> None:
    """Writes a corpus: the lines, and last the manifest, which marks it complete."""
    folder.mkdir(parents=True, exist_ok=True)
    text = b"".join(msgspec.json.encode(line) + b"\n" for line in corpus.lines)
    (folder / LINES).write_bytes(lzma.compress(text, preset=6))
    (folder / MANIFEST).write_text(json.dumps(corpus.manifest, indent=1) + "\n", encoding="utf-8")


def copy(made: Path, folder: Path) -> None:
    """Copies a corpus from the folder `made`. Raises BadInput where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for name in (LINES, MANIFEST):
            shutil.copyfile(made / name, folder / name)
    except OSError as error:
        raise BadInput(
            f"{made} holds no corpus of the miniature: {error}", hint="let the corpus be built again"
        ) from None


def load(folder: Path) -> Corpus:
    """Reads a corpus. Raises BadInput where there is none."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        text = lzma.decompress((folder / LINES).read_bytes())
    except (OSError, ValueError, lzma.LZMAError) as error:
        raise BadInput(
            f"{folder} holds no corpus of the miniature: {error}", hint="let the corpus be built again"
        ) from None
    return Corpus(tuple(msgspec.json.decode(line, type=CorpusLine) for line in text.splitlines()), manifest)
