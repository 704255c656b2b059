"""The parser reads hostile HIP text in about linear time, such as long runs of blanks, comments and identifiers."""

from __future__ import annotations

import contextlib
import time

import pytest

from hipwright.errors import ProgramError
from hipwright.program import parse

SIZE = 60_000
TEXTS = {
    "a long comment": "static float f(int a) { /*" + "x " * (SIZE // 2) + "*/ return a; }",
    "blanks": " " * SIZE,
    "words": "a " * (SIZE // 2),
    "static words": "static int " * (SIZE // 11),
    "blanks before a name": "static " + " " * SIZE + "f(",
    "comments that never end": "/* " * (SIZE // 3) + "__FILE_",
    "a macro and blanks": "#define a b" + " " * SIZE + "\\x",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_long_hip_text_is_read_at_once(text: str) -> None:
    start = time.thread_time()
    with contextlib.suppress(ProgramError):
        parse(f"HIP = r'''\n{text}\n'''\ndef forward(self, x):\n    return x\n")
    assert time.thread_time() - start < 2.0


@pytest.mark.parametrize("literal", ["'''", '"""', "r'''", 'r"""', "R'''"])
def test_hip_is_read_whatever_characters_lie_around_it(literal: str) -> None:
    """Columns count bytes of UTF-8; form feeds and other separators of str.splitlines end no line."""
    hip = "\n// µs, \x0c und \u2028 Ω\n"
    text = f'"""naïve ✓"""; HIP = {literal}{hip}{literal[-3:]}; A = 2\ndef forward(self, x):\n    return x\n'
    parsed = parse(text)
    assert (parsed.hip, parsed.hip_line) == (hip, 1)
