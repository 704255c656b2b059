"""The suite's tasks: benchmarks/kernels/FAMILY/NAME.py, and what the tool must know of them beside their code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from hipwright.errors import BadInput
from hipwright.records import content_key

ROOT = Path(__file__).parents[1] / "kernels"

MAX_AUTOTUNE = frozenset({"gemv", "gemm_epilogue", "grouped_gemm"})
"""Families whose tasks are also compared with torch.compile's max-autotune: it tunes products above all."""
MAX_AUTOTUNE_TASKS = frozenset(
    {
        "attention/written_out_fp16",
        "attention/distance_bias_fp32",
        "convolutions/pointwise_bias_relu_bf16",
        "networks/mlp_small_fp32",
        "norms/layer_norm_bf16",
        "softmax/long_rows_fp32",
    }
)


@dataclass(frozen=True)
class SuiteTask:
    """One file."""

    path: Path

    @property
    def family(self) -> str:
        """The folder's name."""
        return self.path.parent.name

    @property
    def name(self) -> str:
        """FAMILY/NAME."""
        return f"{self.family}/{self.path.stem}"

    @property
    def max_autotune(self) -> bool:
        """Whether it is compared with max-autotune too."""
        return self.family in MAX_AUTOTUNE or self.name in MAX_AUTOTUNE_TASKS

    @property
    def gathers(self) -> bool:
        """Gathers, segments and top-k, which may reach half a copy's speed (issue 6)."""
        return gathers(self.name)

    @property
    def key(self) -> str:
        """Changes with the file."""
        return content_key("suite task", self.path.read_bytes())


def gathers(name: str) -> bool:
    """Whether the task FAMILY/NAME picks or sorts rather than streams."""
    family, _, rest = name.partition("/")
    return family == "embedding_segment" or "top" in rest


def find(root: Path = ROOT, families: Sequence[str] = (), names: Sequence[str] = ()) -> list[SuiteTask]:
    """The tasks asked for, one of each family after the other, so that a run cut short saw something of all.

    names: FAMILY/NAME or NAME. BadInput for a family or task that is not there.
    """
    every = [SuiteTask(path) for path in sorted(root.glob("*/*.py"))]
    for wanted, known in ((families, {t.family for t in every}), (names, {n for t in every for n in _called(t)})):
        if missing := [one for one in wanted if one not in known]:
            raise BadInput(f"no such family or task: {', '.join(missing)}", hint=f"see {root}")
    chosen = [t for t in every if (not families or t.family in families) and (not names or {*_called(t)} & {*names})]
    by_family: dict[str, list[SuiteTask]] = {}
    for task in chosen:
        by_family.setdefault(task.family, []).append(task)
    return [task for task in chain.from_iterable(zip_longest(*by_family.values())) if task is not None]


def _called(task: SuiteTask) -> tuple[str, str]:
    return task.name, task.path.stem
