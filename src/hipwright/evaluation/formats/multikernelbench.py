"""MultiKernelBench's layout: reference/CATEGORY/OP.py, each a file in the KernelBench form."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hipwright.evaluation.formats.base import BenchTask, FormatRule, TaskFormat
from hipwright.evaluation.formats.kernelbench import number_of, python_files, subfolders


class MultiKernelBenchFormat(TaskFormat):
    """The loader of MultiKernelBench's `reference` folder."""

    name = "multikernelbench"
    title = "MultiKernelBench"
    layout = "reference/CATEGORY/OP.py"
    no_training = ""
    rule = FormatRule(
        tolerance="torch.allclose with the reference's output, by the back end's correctness_execution",
        timing="the back end's time_execution, against the reference in eager mode",
        source="https://github.com/wzzll123/MultiKernelBench",
    )

    def detect(self, folder: Path) -> bool:
        """Whether there is reference/CATEGORY/OP.py."""
        return (folder / "reference").is_dir() and any(map(python_files, subfolders(folder / "reference")))

    def load(self, folder: Path) -> Iterable[BenchTask]:
        """The tasks of every category, named CATEGORY/OP."""
        for category in subfolders(folder / "reference") if (folder / "reference").is_dir() else ():
            for path in python_files(category):
                name = f"{category.name}/{path.stem}"
                yield BenchTask(name, path, number=number_of(path), category=category.name, rule=self.rule)


MULTIKERNELBENCH = MultiKernelBenchFormat()
