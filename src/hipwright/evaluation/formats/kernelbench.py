"""KernelBench's layout: DIR/*.py and DIR/levelN/*.py; in a folder that has neither, DIR/FAMILY/*.py.

Its files are tasks as they are. Order: by name, with numbers by value; names that begin with "_" or "." are left out.
"""

from __future__ import annotations

import re
from pathlib import Path

from hipwright.errors import BadInput
from hipwright.evaluation.formats.base import BenchTask, FormatRule, TaskFormat

_LEVEL = re.compile(r"level_?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"(\d+)_")
KERNELBENCH_RULE = FormatRule(
    tolerance="torch.allclose with the reference's output in its own dtype, on five draws of the given inputs; "
    "atol = rtol = 1e-4 in float32, 1e-2 in half types",
    timing="the mean of its timed calls, against eager; fast_p counts the plain ratio",
    source="https://github.com/ScalingIntelligence/KernelBench/blob/main/src/eval.py",
)


class KernelBenchFormat(TaskFormat):
    """The loader of KernelBench's folders, and of any folder of task files."""

    name = "kernelbench"
    title = "KernelBench"
    layout = "*.py, levelN/*.py, or FAMILY/*.py"
    no_training = ""
    rule = KERNELBENCH_RULE

    def detect(self, folder: Path) -> bool:
        """Whether there are task files where it has them."""
        return bool(self.load(folder))

    def load(self, folder: Path, level: int | None = None) -> list[BenchTask]:
        """The tasks. level: only those of folder/levelN. Raises BadInput where that is not there."""
        levels = numbered(folder)
        if level is not None and level not in levels:
            known = ", ".join(f"level{n}" for n in sorted(levels)) or "no levelN folders"
            raise BadInput(f"{folder} has no level {level}", hint=f"it has {known}")
        chosen = {level: levels[level]} if level is not None else levels
        own = level_of(folder.name)
        found = [] if level is not None else [_task(folder, path, own) for path in python_files(folder)]
        for number in sorted(chosen):
            found += [_task(folder, path, number) for path in python_files(chosen[number])]
        if not found and not levels:
            found = [_task(folder, path, None) for family in subfolders(folder) for path in python_files(family)]
        return found


KERNELBENCH = KernelBenchFormat()


def numbered(folder: Path) -> dict[int, Path]:
    """The levelN folders, by N."""
    return {number: path for path in folder.iterdir() if path.is_dir() and (number := level_of(path.name)) is not None}


def python_files(folder: Path) -> list[Path]:
    """The *.py files in order of their names."""
    found = [path for path in folder.glob("*.py") if path.is_file() and not path.name.startswith(("_", "."))]
    return sorted(found, key=lambda path: natural(path.stem))


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, in order of their names."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(("_", ".")))


def level_of(name: str) -> int | None:
    """N of levelN."""
    found = _LEVEL.fullmatch(name)
    return int(found[1]) if found else None


def number_of(path: Path) -> int | None:
    """The number that begins a file's name, as in KernelBench's."""
    found = _NUMBER.match(path.stem)
    return int(found[1]) if found else None


def natural(text: str) -> list[tuple[int, str]]:
    """A sort key by which 2_x comes before 10_x."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text) if part]


def _task(root: Path, path: Path, level: int | None) -> BenchTask:
    family = path.parent.name if path.parent != root else ""
    category = f"level{level}" if level is not None else family
    name = path.relative_to(root).with_suffix("").as_posix()
    return BenchTask(name, path, level, number_of(path), category=category, rule=KERNELBENCH_RULE)
