"""What synthesis makes: a draft, a finished task with what it does, and what was not taken (docs/synth.md)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hipwright.records import Record, TensorSpec

Mode = Literal["mutation", "composition", "constraint"]
MODES: tuple[Mode, ...] = ("mutation", "composition", "constraint")

Mind = Literal["engine", "llm"]
Difficulty = Literal["easy", "medium", "hard"]


class Draft(Record, frozen=True, kw_only=True):
    """A task's text before anything was checked. source: the KernelBench form.

    operators: names in the library, () for mutations; parents: keys of the tasks it was made from; detail: how, in
    words.
    """

    name: str
    source: str
    mode: Mode
    mind: Mind = "engine"
    operators: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    seed: int = 0
    detail: str = ""


class Made(Record, frozen=True, kw_only=True):
    """A task that passed the self-check and the lint, and what it does.

    task: key of the hipwright.records.Task; operators: ATen names in order of first use; fused: operators that are
    neither views nor products; bytes, flops: of one call by measure/cost.py; intensity: flops per byte; roofline_us:
    microseconds by published peaks, {device: time}; graph: the canonical graph hash.
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
    """What was not taken. stage: of synth.check.Stage, or of the lint and the search for duplicates."""

    draft: Draft
    stage: str
    why: str
