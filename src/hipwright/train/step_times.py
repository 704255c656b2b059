"""What each update of a training took in each process: seconds by phase, memory of its GPU, tokens.

They are in files of their own (times-RANK.jsonl), since `metrics.jsonl` of a resumed training equals that of an
uninterrupted one, and times do not.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILE = "times-{rank}.jsonl"


class StepTimes:
    """Collects spans by name until `step`, which appends a line. folder: the training's."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE.format(rank=os.environ.get("RANK", "0"))
        self._spans: dict[str, float] = {}
        self._begun = time.monotonic()

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Adds the seconds of the block to a phase."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._spans[name] = self._spans.get(name, 0.0) + time.monotonic() - begun

    def step(self, number: int, tokens: float | None = None) -> None:
        """Ends an update: `seconds` since the last one, those of the phases, and the most memory that torch held.

        tokens: of all processes since the training began, where the trainer counts them.
        """
        now = time.monotonic()
        line: dict[str, object] = {"step": number, "seconds": round(now - self._begun, 4)}
        line |= {f"seconds_{name}": round(seconds, 4) for name, seconds in self._spans.items()}
        line |= _memory() | ({"tokens": tokens} if tokens is not None else {})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
        self._spans, self._begun = {}, now


def _memory() -> dict[str, float]:
    import torch

    if not torch.cuda.is_available():
        return {}
    held = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {"allocated_gb": round(held[0] / 1e9, 3), "reserved_gb": round(held[1] / 1e9, 3)}
