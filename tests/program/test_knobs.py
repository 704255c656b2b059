"""Knobs and constants: bounded evaluation agrees with Python's; chosen values replace defaults in the text."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.errors import ProgramError
from hipwright.program import parse
from hipwright.program.knobs import LIMIT, evaluate, text_with_knobs
from hipwright.program.language import cdiv, next_pow2
from hipwright.records import Program

from .support import HIP

GOOD = (Path(__file__).parents[1] / "bad_input" / "good.py").read_text()
OPERATORS = ("+", "-", "*", "//", "%", "**", "<<", ">>", "&", "|", "^", "<", "<=", "==", "!=", "and", "or")
NUMBERS = st.integers(-100, 100)
LEAVES = st.one_of(NUMBERS.map(str), st.sampled_from(["A", "B", "True"]))
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["-", "~", "+", "not "]), inner).map(lambda t: f"({t[0]}{t[1]})"),
        st.tuples(st.sampled_from(["min", "max", "cdiv"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
    ),
    max_leaves=8,
)
NAMES = {"A": 7, "B": 64}


@given(EXPRESSIONS)
def test_values_are_pythons_or_refused(text: str) -> None:
    node = ast.parse(text, mode="eval").body
    try:
        value = evaluate(node, NAMES)
    except ProgramError as error:
        assert error.line == 1
        return
    assert abs(value) < LIMIT
    functions = {"min": min, "max": max, "cdiv": cdiv, "next_pow2": next_pow2}
    assert value == eval(compile(ast.Expression(node), "", "eval"), {**NAMES, **functions})


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=6, unique=True), st.data())
def test_knobs_keep_their_choices(choices: list[int], data: st.DataObject) -> None:
    default = data.draw(st.sampled_from(choices))
    chosen = data.draw(st.sampled_from(choices))
    text = (
        f"HIP = r'''\n'''\nK = knob({default}, choices={choices})\nTWICE = K + K\ndef forward(self, x):\n    return x\n"
    )
    parsed = parse(text)
    assert parsed.knobs["K"].default == default and list(parsed.knobs["K"].choices) == choices
    assert parsed.defines() == {"K": default} and parsed.defines({"K": chosen}) == {"K": chosen}
    assert parsed.values({"K": chosen}) == {"K": chosen, "TWICE": 2 * chosen}


def test_wrong_choices_are_refused() -> None:
    parsed = parse(HIP + "def forward(self, x):\n    return x\n")
    with pytest.raises(ProgramError, match=r"has no knob BLOK; did you mean BLOCK\?"):
        parsed.choose({"BLOK": 1})
    with pytest.raises(ProgramError, match=r"knob BLOCK cannot be 65; its choices are \[64, 128, 256\]"):
        parsed.choose({"BLOCK": 65})


def test_boolean_knobs_are_numbers_in_hip_and_booleans_in_the_plan() -> None:
    parsed = parse(HIP + "def forward(self, x):\n    return x\n")
    assert parsed.defines({"FAST": 0}) == {"BLOCK": 256, "FAST": 0}
    assert parsed.choose({"FAST": 0})["FAST"] is False


def test_a_constant_that_fails_for_one_choice_fails_for_that_choice() -> None:
    parsed = parse("HIP = r'''\n'''\nK = knob(1, choices=[0, 1])\nN = 8 // K\ndef forward(self, x):\n    return x\n")
    assert parsed.values()["N"] == 8
    with pytest.raises(ProgramError, match="line 4: division by zero"):
        parsed.values({"K": 0})


def test_chosen_knobs_become_defaults() -> None:
    text = GOOD.replace("def forward", "WIDE = knob(True, choices=[True, False])  # µ\nN = BLOCK * 2\n\n\ndef forward")
    program = Program(text=text, knobs={"BLOCK": 64, "WIDE": 0})
    file = text_with_knobs(program)
    assert parse(file).choose() == parse(text).choose(program.knobs) == {"BLOCK": 64, "WIDE": False}
    assert [a for a, b in zip(text.splitlines(), file.splitlines(), strict=True) if a != b] == [
        "BLOCK = knob(256, choices=[64, 128, 256, 512])",
        "WIDE = knob(True, choices=[True, False])  # µ",
    ]


def test_no_knobs_no_change() -> None:
    assert text_with_knobs(Program(text=GOOD)) == GOOD
