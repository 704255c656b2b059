"""Records of synthesis: a draft, a finished task with its description, and a dropped draft (docs/synth.md)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hipwright.records import Record, TensorSpec

Mode = Literal["mutation", "composition", "constraint"]
MODES: tuple[Mode, ...] = ("mutation", "composition", "constraint")

Author = Literal["engine", "llm"]
Difficulty = Literal["easy", "medium", "hard"]


class Draft(Record, frozen=True, kw_only=True):
    """The text of a task before any check. source: a file in the KernelBench form; author: "mind" in JSON.

    operators: names in the library, () for mutations; parents: keys of the tasks that it was made from; detail: what
    was composed or changed, as text.
    """

    name: str
    source: str
    mode: Mode
    author: Author = msgspec.field(name="mind", default="engine")
    operators: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    seed: int = 0
    detail: str = ""


class SyntheticTask(Record, frozen=True, kw_only=True):
    """A task that passed the self-check, with its description.

    task: key of the hipwright.records.Task; operators: ATen names in order of first use; fused: how many operators are
    neither views nor products; bytes, flops: of one call, by measure/cost.py; intensity: flops per byte; roofline_us:
    {device: microseconds} by published peaks; graph: the canonical graph hash.
    """

    draft: Draft
    task: str
    operators: tuple[str, ...]
    families: tuple[str, ...] = ()
    fused: int = 0
    dtype: str = "float32"
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    bytes: float = 0.0
    flops: float = 0.0
    intensity: float = 0.0
    roofline_us: dict[str, float] = msgspec.field(default_factory=dict)
    difficulty: Difficulty = "easy"
    graph: str = ""
    licence: str = "Apache-2.0"
    provenance: dict[str, Any] = msgspec.field(default_factory=dict)


class DroppedDraft(Record, frozen=True, kw_only=True):
    """A draft that gave no task. stage: a `synth.check.Stage`, or the later check that it failed; why: the reason."""

    draft: Draft
    stage: str
    why: str
