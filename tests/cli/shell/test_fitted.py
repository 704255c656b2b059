"""Tables at any width: no line is too long, no word is broken where it fits, and no cell is lost."""

from __future__ import annotations

import io
import re

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hipwright.cli.display.fitted import LONG, plain_table

WORD = st.text(alphabet="abcdefgh_,", min_size=1, max_size=18)
CELL = st.lists(WORD, max_size=6).map(" ".join)


def printed(width: int, heads: tuple[str, ...], rows: list[tuple[str, ...]], right: tuple[str, ...] = ()) -> str:
    out = Console(file=io.StringIO(), width=width, color_system=None)
    out.print(plain_table(heads, rows, right=right))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


@given(st.integers(30, 120), st.lists(st.tuples(CELL, CELL, CELL, CELL), min_size=1, max_size=4))
def test_words_stay_whole(width: int, rows: list[tuple[str, ...]]) -> None:
    text = printed(width, ("first", "second", "third", "fourth"), rows, right=("third",))
    assert all(len(line) <= width for line in text.splitlines())
    shown = set(text.split())
    for row in rows:
        for cell in row:
            for word in cell.split():
                assert word in shown, (word, text)


def test_columns_are_narrowed_before_they_become_blocks() -> None:
    row = ("gfx942", "softmax bitwise_not div masked_fill", "63", "a reason of several words")
    heads = ("target", "kernel", "VGPR", "why")
    wide, narrow, least = (printed(width, heads, [row], right=("VGPR",)) for width in (120, 44, 20))
    assert len(wide.splitlines()) == 2 and "  63  " in wide
    assert narrow.splitlines()[0].split() == list(heads) and len(narrow.splitlines()) > 2
    assert least.splitlines()[0] == "target gfx942" and re.search(r"^  VGPR    63$", least, re.MULTILINE)


def test_a_long_identifier_is_broken_at_a_joint() -> None:
    name = "softmax_bitwise_not_div_masked_fill_exact"
    assert len(name) > LONG
    text = printed(30, ("kernel", "n"), [(name, "1")])
    pieces = [line.split()[0] for line in text.splitlines()[1:]]
    assert "".join(pieces) == name and all(piece.endswith("_") for piece in pieces[:-1])


def test_hostile_cells_cannot_move_the_cursor() -> None:
    assert "\x1b" not in printed(80, ("a", "b"), [("x\x1b[2J", "y\nz")])
