"""The one list of task formats, and finding the one that a folder has."""

from __future__ import annotations

from pathlib import Path

from hipwright.errors import BadInput
from hipwright.evaluation.formats.backendbench import BACKENDBENCH
from hipwright.evaluation.formats.base import TaskFormat
from hipwright.evaluation.formats.flashinfer_trace import FLASHINFER_TRACE
from hipwright.evaluation.formats.gpu_mode import GPU_MODE
from hipwright.evaluation.formats.kernelbench import KERNELBENCH
from hipwright.evaluation.formats.kernelbench_x import KERNELBENCH_X
from hipwright.evaluation.formats.multikernelbench import MULTIKERNELBENCH
from hipwright.evaluation.formats.robust_kbench import ROBUST_KBENCH
from hipwright.evaluation.formats.sol_execbench import SOL_EXECBENCH

FORMATS: tuple[TaskFormat, ...] = (
    BACKENDBENCH,
    FLASHINFER_TRACE,
    GPU_MODE,
    KERNELBENCH_X,
    MULTIKERNELBENCH,
    ROBUST_KBENCH,
    SOL_EXECBENCH,
    KERNELBENCH,
)
"""Every format; KernelBench's last: any folder of Python files has it."""


def format_named(name: str) -> TaskFormat:
    """The format of a name. Raises BadInput for none."""
    for one in FORMATS:
        if one.name == name:
            return one
    raise BadInput(f"no such format: {name}", hint=f"formats: {', '.join(sorted(one.name for one in FORMATS))}")


def format_of(folder: Path) -> TaskFormat:
    """The format that a folder has, KernelBench's where it has no other. Raises BadInput where it has several."""
    found = [one for one in FORMATS if one is not KERNELBENCH and one.detect(folder)]
    if len(found) > 1:
        names = " and ".join(one.name for one in found)
        raise BadInput(f"{folder} has the layouts of {names}", hint="choose with --format NAME")
    return found[0] if found else KERNELBENCH
