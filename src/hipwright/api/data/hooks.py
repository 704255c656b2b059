"""Functions of packages above `hipwright.dataset` that a data set's workers call, and fresh machines."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.machine import Machine, machine
from hipwright.records import Evaluation, Program

if TYPE_CHECKING:
    from hipwright.archive import Archive
    from hipwright.dataset.records import Pair
    from hipwright.dataset.store import DatasetStore


def processors() -> int:
    """The number of processors that this process may use, the default number of workers."""
    return len(os.sched_getaffinity(0))


@contextmanager
def fresh_machine(targets: tuple[str, ...], unsafe: bool) -> Iterator[Machine]:
    """A Machine with an empty build cache."""
    with (
        tempfile.TemporaryDirectory(prefix="hipwright-check-") as folder,
        machine(targets, unsafe=unsafe, cache=Path(folder)) as made,
    ):
        yield made


def mutants(program: Program, number: int) -> Iterator[tuple[Program, str]]:
    """Every automatic mutant and its change, in an order drawn from the number; kinds of change alternate."""
    from hipwright.audit.mutants import mutants as every
    from hipwright.audit.mutants import sample
    from hipwright.program import parse

    for mutant in sample([every("program", parse(program.text))], number):
        yield Program(text=mutant.text, knobs=program.knobs), mutant.description()


def evidence_text(evaluation: Evaluation, program: Program) -> str:
    """The verifier's evidence as a model's prompt has it."""
    from hipwright.agents.evidence import evidence

    return evidence(evaluation, program)


def search_pairs(archive: Archive, run: str) -> Iterable[Pair]:
    """The pairs of a search run."""
    from hipwright.agents.archivist import pairs

    return pairs(archive, run)


def split_fields(store: DatasetStore) -> dict[str, dict[str, Any]]:
    """Every row's split, determined over the whole data set."""
    from hipwright.dataset.split import pair_splits
    from hipwright.dataset.store import read_pairs

    return pair_splits(read_pairs(store.folder), int(store.settings["seed"]))
