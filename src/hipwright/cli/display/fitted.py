"""Tables that fit the terminal without a broken word.

A column is never narrower than its longest word; a long identifier may be broken after `_`, `,`, `/`, `.` or `-`. Where
even that is too wide, each row becomes a block: its first cell, then a line `head  value` for each other cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hipwright.api.plain import clean

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

GAP = 2  # columns between two cells
LONG = 24  # characters from which on a word may be broken at a joint
_JOINT = re.compile(r"(?<=[_,/.\-])(?=[^\s])")


@dataclass
class FittedTable:
    """A table without lines for a rich console. rows: cells of any type, as many as heads.

    right: the heads of right-aligned columns. title: a bold line above, "" for none.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()
    title: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        """Yields the lines of the table at the console's width."""
        from rich.text import Text

        def line(text: str, style: str = "") -> Any:
            return Text(text.rstrip(), style=style, no_wrap=True, overflow="ignore")

        if self.title:
            yield Text(self.title, style="bold")
        widths = self._widths(options.max_width)
        if widths is None:
            for text in self._blocks(options.max_width):
                yield line(text)
            return
        if any(self.heads):
            yield from (line(text, "dim") for text in self._row(self.heads, widths))
        for row in self.rows:
            yield from (line(text) for text in self._row(row, widths))

    def _widths(self, most: int) -> list[int] | None:
        """The width of each column; None where no widths fit."""
        columns = [[head, *(row[place] for row in self.rows)] for place, head in enumerate(self.heads)]
        wanted = [max(map(_width, cells)) for cells in columns]
        least = [max(map(_longest_piece, cells)) for cells in columns]
        room = most - GAP * (len(columns) - 1)
        for narrow in ([wanted[0], *least[1:]], least):  # the first column names the row
            if sum(narrow) <= room:
                return _shared(narrow, wanted, room)
        return None

    def _row(self, cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
        parts = [wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
        for number in range(max(map(len, parts))):
            shown = [part[number] if number < len(part) else "" for part in parts]
            yield (" " * GAP).join(
                _pad(text, width, right=head in self.right)
                for text, width, head in zip(shown, widths, self.heads, strict=True)
            )

    def _blocks(self, most: int) -> Iterator[str]:
        label = max((len(head) for head in self.heads[1:]), default=0)
        for row in self.rows:
            first = f"{self.heads[0]} {row[0]}" if self.heads[0] and row[0] else row[0]
            yield from wrapped(first, most)
            for head, cell in zip(self.heads[1:], row[1:], strict=True):
                if cell not in ("", "-", "–"):
                    texts = wrapped(cell, max(most - label - 2 * GAP, 1))
                    yield f"{' ' * GAP}{head:<{label}}{' ' * GAP}{texts[0]}"
                    yield from (" " * (label + 2 * GAP) + text for text in texts[1:])


def plain_table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = (), title: str = ""
) -> FittedTable:
    """A table without lines; columns named in `right` are right-aligned, the title is a bold line above."""
    return FittedTable(heads, [[clean(cell) for cell in row] for row in rows], right, title)


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, broken between words, in long words at a joint, else anywhere."""
    lines = [""]
    for word in text.split():
        for number, piece in enumerate(_pieces(word)):
            space = " " if lines[-1] and number == 0 else ""
            if _width(lines[-1] + space + piece) > width and lines[-1]:
                lines.append("")
                space = ""
            lines[-1] += space + piece
            while _width(lines[-1]) > width:
                lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return lines


def _pieces(word: str) -> list[str]:
    return _JOINT.split(word) if len(word) > LONG else [word]


def _longest_piece(text: str) -> int:
    return max((_width(piece) for word in text.split() for piece in _pieces(word)), default=0)


def _shared(least: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """The least widths, and the rest of the room in proportion to what each column lacks."""
    left, lacking = room - sum(least), sum(wanted) - sum(least)
    if lacking <= left:
        return list(wanted)
    return [low + left * (high - low) // lacking for low, high in zip(least, wanted, strict=True)]


def _pad(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
