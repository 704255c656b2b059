"""The strategy of generated graphs: a module of 1 to 8 operators around one of a family, as a task file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from benchmarks.fuzz.families import FAMILIES, RANKS, Make
from benchmarks.fuzz.sketch import FLOATS, GraphSketch, Unfit

OTHERS: tuple[Make, ...] = tuple(make for family in FAMILIES.values() for make in family)
CHOICES = 3
"""Draws of the engine's choices, 0 being its own."""


@dataclass(frozen=True)
class FuzzCase:
    """One graph. text: the task file; choices: the number of a draw of the engine's choices, 0 for its own."""

    family: str
    text: str
    choices: int
    wave: int

    def __repr__(self) -> str:
        return f"{self.family}, choices {self.choices}, waves of {self.wave}\n{self.text}"


@st.composite
def cases(draw: Any, family: str) -> FuzzCase:
    """A graph with an operator of the family."""
    sketch = GraphSketch(draw, draw(st.sampled_from(FLOATS)))
    sketch.values.append(sketch.input(sketch.shape(RANKS.get(family, (1, 2, 3, 4)))))
    count = draw(st.integers(0, 6))
    place = draw(st.integers(0, count))
    found = 0
    for k in range(count + 1):
        try:
            if k == place:
                draw(st.sampled_from(FAMILIES[family]))(sketch)
                found += 1
            else:
                draw(st.sampled_from(OTHERS))(sketch)
        except Unfit:
            continue
    assume(found == 1)
    last = sketch.values[-1].name
    others = [value.name for value in sketch.values[1:-1]]
    returned = [last, draw(st.sampled_from(others))] if others and draw(st.booleans()) else [last]
    text = sketch.text(list(dict.fromkeys(returned)))
    return FuzzCase(family, text, draw(st.integers(0, CHOICES)), draw(st.sampled_from((64, 32))))
