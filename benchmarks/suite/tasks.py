"""The tasks that a benchmark measures: those of a suite (benchmarks/suites), or of a folder of families."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path

from hipwright.errors import BadInput
from hipwright.evaluation.task_suite import TaskSuite, list_suites, open_suite, task_name
from hipwright.records import content_key

SUITES = Path(__file__).parents[1] / "suites"
KERNELS = "kernels"
"""The suite that is measured by default."""


@dataclass(frozen=True)
class SuiteTask:
    """One file of a suite."""

    path: Path
    suite: TaskSuite

    @property
    def family(self) -> str:
        """The folder's name."""
        return self.path.parent.name

    @property
    def name(self) -> str:
        """FAMILY/NAME."""
        return task_name(self.path)

    @property
    def max_autotune(self) -> bool:
        """Whether it is compared with max-autotune too."""
        return self.suite.uses_max_autotune(self.name)

    @property
    def key(self) -> str:
        """Changes with the file."""
        return content_key("suite task", self.path.read_bytes())


def suite_named(name: str = KERNELS) -> TaskSuite:
    """A suite of this repository, of the working folder or of the user. BadInput for a name without a suite."""
    known = {**{path.stem: path for path in SUITES.glob("*.toml")}, **list_suites()}
    if name not in known:
        raise BadInput(f"no such suite: {name}", hint=f"known: {', '.join(sorted(known))}")
    return open_suite(known[name])


def suite_in(root: Path) -> TaskSuite:
    """The tasks root/FAMILY/NAME.py, with the patterns of the suite of kernels."""
    return replace(suite_named(), paths=tuple(sorted(root.glob("*/*.py"))))


def find(suite: TaskSuite | None = None, families: Sequence[str] = (), names: Sequence[str] = ()) -> list[SuiteTask]:
    """The tasks asked for, one of each family in turn, so that a run cut short measured some of every family.

    suite: the suite of kernels by default. names: FAMILY/NAME or NAME. BadInput for a family or task that is not there.
    """
    suite = suite or suite_named()
    every = [SuiteTask(path, suite) for path in suite.paths]
    for wanted, known in ((families, {t.family for t in every}), (names, {n for t in every for n in _names(t)})):
        if missing := [one for one in wanted if one not in known]:
            raise BadInput(f"no such family or task: {', '.join(missing)}", hint="--list names them")
    chosen = [t for t in every if (not families or t.family in families) and (not names or {*_names(t)} & {*names})]
    by_family: dict[str, list[SuiteTask]] = {}
    for task in chosen:
        by_family.setdefault(task.family, []).append(task)
    return [task for task in chain.from_iterable(zip_longest(*by_family.values())) if task is not None]


def add_tasks(options: argparse.ArgumentParser) -> None:
    """Adds the options that choose tasks."""
    options.add_argument("--suite", default=KERNELS, metavar="NAME", help="a suite by name (docs/bench.md)")
    options.add_argument("--root", type=Path, help="a folder of families instead of a suite")
    options.add_argument("--family", nargs="+", default=[])
    options.add_argument("--task", nargs="+", default=[])


def chosen_suite(options: argparse.Namespace) -> TaskSuite:
    """The suite that the options name."""
    return suite_in(options.root) if options.root else suite_named(options.suite)


def chosen_tasks(options: argparse.Namespace) -> list[SuiteTask]:
    """The tasks that the options choose. BadInput for a family or task that is not there."""
    return find(chosen_suite(options), options.family, options.task)


def _names(task: SuiteTask) -> tuple[str, str]:
    return task.name, task.path.stem
