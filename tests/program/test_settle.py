"""program.py must be the winner itself: its chosen knobs are its defaults."""

from __future__ import annotations

from pathlib import Path

from hipwright.program import parse
from hipwright.program.settle import settled
from hipwright.records import Program

GOOD = (Path(__file__).parents[1] / "bad_input" / "good.py").read_text()


def test_chosen_knobs_become_defaults() -> None:
    text = GOOD.replace("def forward", "WIDE = knob(True, choices=[True, False])  # µ\nN = BLOCK * 2\n\n\ndef forward")
    program = Program(text=text, knobs={"BLOCK": 64, "WIDE": 0})
    file = settled(program)
    assert parse(file).choose() == parse(text).choose(program.knobs) == {"BLOCK": 64, "WIDE": False}
    assert [a for a, b in zip(text.splitlines(), file.splitlines(), strict=True) if a != b] == [
        "BLOCK = knob(256, choices=[64, 128, 256, 512])",
        "WIDE = knob(True, choices=[True, False])  # µ",
    ]


def test_no_knobs_no_change() -> None:
    assert settled(Program(text=GOOD)) == GOOD
