"""The tuning cache: which of the engine's choices won, by device and shape class; used as the first answer next time.

One line a search in `tuned.jsonl` of the archive's folder, appended; of a device and class the last line holds. What a
search found by measurement is kept under the measured device's name, what it found by static estimates under their
targets' names, and the one is never taken for the other. Only choices are kept, never a program: the program is written
and verified anew, so a wrong or outdated entry costs one evaluation.

A *shape class* is the graph with its sizes rounded: two sizes are alike when they round to the same power of two and
have the same power of two up to 16 as a factor, which is what decides mappings and vector widths. Node names are part
of it, because choices are named after them. An entry holds only while the engine offers the same choices with the same
options: a new template makes it void.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from math import gcd, log2
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from hipwright.archive.choice_names import current_choices, first_options
from hipwright.capture.graph import Graph
from hipwright.records import Evaluation, Record, content_key

FILE = "tuned.jsonl"
EXACT = 16  # integers up to this are kept as they are: kernel sizes, axes, groups


class Choosable(Protocol):
    """One thing that may vary, as `hipwright.engine.knobs.Choice`."""

    @property
    def options(self) -> Sequence[Any]:
        """The values it may take."""
        ...


class Tuned(Record, frozen=True, kw_only=True):
    """The best choices of one search. device: as a Timing names it, or "estimate TARGET,TARGET".

    space: key of what could be chosen. microseconds: of the best, by `kind`. task: the task's key; evaluations: what
    the search spent. Choices are the engine's own: those of a language model's program cannot be made again.
    """

    device: str
    shape_class: str
    space: str
    choices: dict[str, Any]
    microseconds: float
    kind: Literal["measured", "estimate"]
    task: str = ""
    program: str = ""
    evaluations: int = 0
    clock: float = 0.0


class TuningCache:
    """The file of a folder. Any number of processes may read and append."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def entries(self) -> list[Tuned]:
        """Every line that can be read, the oldest first."""
        found = []
        with contextlib.suppress(OSError):
            for line in self.path.read_bytes().splitlines():
                with contextlib.suppress(msgspec.MsgspecError):  # incomplete, or of another version
                    one = Tuned.from_json(line)
                    found.append(msgspec.structs.replace(one, choices=current_choices(one.choices)))
        return found

    def best(self, devices: Iterable[str], graph: Graph, space: Mapping[str, Choosable]) -> Tuned | None:
        """What holds for the graph on the first of the devices that knows its class; None where nothing does."""
        known, offered = shape_class(graph), {space_key(space), first_space_key(space)}
        entries = [one for one in self.entries() if one.shape_class == known and one.space in offered]
        for device in devices:
            if found := [one for one in entries if one.device == device]:
                return found[-1]
        return None

    def remember(self, tuned: Tuned) -> bool:
        """Append, unless an earlier search of the same task on the same device did as well; whether it was appended."""
        rivals = [
            one
            for one in self.entries()
            if (one.device, one.task, one.space) == (tuned.device, tuned.task, tuned.space)
        ]
        if rivals and rivals[-1].microseconds <= tuned.microseconds:
            return False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = msgspec.structs.replace(tuned, clock=time.time()).to_json().encode() + b"\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line)  # one write: lines of two processes do not mix
        finally:
            os.close(handle)
        return True


def tuned_of(
    graph: Graph, space: Mapping[str, Choosable], choices: Mapping[str, Any], evaluation: Evaluation, evaluations: int
) -> Tuned | None:
    """What a search has found, as an entry; None where nothing was chosen, or nothing was timed or estimated."""
    device, kind = scored_on(evaluation)
    if not choices or not space or evaluation.score is None or kind is None:
        return None
    return Tuned(
        device=device,
        shape_class=shape_class(graph),
        space=space_key(space),
        choices={key: choices[key] for key in sorted(choices) if key in space},
        microseconds=evaluation.score,
        kind=kind,
        task=evaluation.task,
        program=evaluation.program,
        evaluations=evaluations,
    )


def scored_on(evaluation: Evaluation) -> tuple[str, Literal["measured", "estimate"] | None]:
    """What an evaluation's score is of: (the measured device, "measured") or (the targets, "estimate")."""
    if evaluation.score_kind == "measured":
        return next(r.timing.device for r in evaluation.targets.values() if r.timing is not None), "measured"
    if evaluation.score_kind == "estimate":
        return estimated_on(name for name, r in evaluation.targets.items() if r.estimate is not None), "estimate"
    return "", None


def estimated_on(targets: Iterable[str]) -> str:
    """The name under which choices by static estimates are kept."""
    return f"estimate {','.join(sorted(targets))}"


def space_key(space: Mapping[str, Choosable]) -> str:
    """What can be chosen, without what the engine would choose."""
    return content_key("space", json.dumps({key: list(space[key].options) for key in sorted(space)}))


def first_space_key(space: Mapping[str, Choosable]) -> str:
    """The key of the same space in entries of version 0.1."""
    options = first_options({key: space[key].options for key in space})
    return content_key("space", json.dumps({key: options[key] for key in sorted(options)}))


def shape_class(graph: Graph) -> str:
    """The graph with rounded sizes; equal for graphs that deserve the same choices."""
    hints = {symbol.name: symbol.hint for symbol in graph.symbols}

    def size(value: Any) -> str:
        return _bucket(_evaluated(value, hints) if isinstance(value, str) else int(value))

    def argument(value: Any) -> Any:
        if isinstance(value, dict):
            return size(value["size"]) if "size" in value else {k: argument(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [argument(one) for one in value]
        if isinstance(value, bool) or value is None or isinstance(value, str):
            return value
        return size(value) if isinstance(value, int) else "float"

    def meta(value: Any) -> Any:
        if value is None:
            return None
        shape, stride = [size(n) for n in value.shape], [size(n) for n in value.stride]
        return [value.dtype, shape, stride]

    told = {
        "inputs": [[one.kind, meta(one.meta)] for one in graph.inputs],
        "nodes": [
            [
                n.name,
                n.op,
                argument(n.args),
                {k: argument(v) for k, v in sorted(n.kwargs.items())},
                [*map(meta, n.outs)],
            ]
            for n in graph.nodes
        ],
        "output": argument(graph.output),
        "dynamic": graph.dynamic,
    }
    return content_key("shape class 1", json.dumps(told, sort_keys=True, default=str))


def _evaluated(text: str, hints: Mapping[str, int]) -> int:
    """A size expression of the graph (hipwright.capture.graph) at the captured sizes."""
    return int(eval(text, {"__builtins__": {}}, {"min": min, "max": max, **hints}))


def _bucket(value: int) -> str:
    if abs(value) <= EXACT:
        return str(value)
    return f"{'-' if value < 0 else ''}2^{round(log2(abs(value)))}/{gcd(value, EXACT)}"
