"""The curves of a comparison as one SVG file: the best over the best there is, after each evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from hipwright.agents.ablation.arms import ArmRow
from hipwright.report.train_plots import PlotAxis, plain

WIDTH, HEIGHT = 860, 440
LEFT, RIGHT, TOP, BOTTOM = 52, 230, 24, 40
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Of the named curves; colour-blind readers can tell them apart."""
GREY = "#c4c4c4"
NAMED = len(COLOURS)
LINE = 16
_STYLE = "text{font:12px sans-serif;fill:#444}path{fill:none;stroke-width:1.2}.named{stroke-width:2.2}"


def curves(rows: Sequence[ArmRow], reference: str) -> str:
    """The SVG: the reference and the arms that end lowest by name and colour, the others in grey with a tooltip."""
    drawn = [row for row in rows if any(value is not None for value in row.excess)]
    named = sorted(drawn, key=lambda row: (row.arm != reference, _area(row)))[:NAMED]
    values = [value for row in drawn for value in row.excess if value is not None]
    budget = max(len(row.excess) for row in drawn)
    x, y = PlotAxis.exact([1, budget], LEFT, WIDTH - RIGHT), PlotAxis([1.0, *values], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="best over the best there is, after each evaluation">',
        f'<style>{_STYLE}</style><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="14">best / best there is (geometric mean, lower is better)</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">evaluations</text>',
    ]
    for tick in y.labelled(plain):
        parts.append(f'<path stroke="#eee" d="M{LEFT},{tick.at}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{tick.at + 4}" text-anchor="end">{tick.label}</text>')
    parts += [
        f'<text x="{tick.at}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick.label}</text>'
        for tick in x.labelled(plain)
    ]
    parts += [_curve(row, x, y, GREY, "") for row in drawn if row not in named]
    for colour, row in zip(COLOURS, named, strict=False):
        parts.append(_curve(row, x, y, colour, ' class="named"'))
    for place, (colour, row) in enumerate(zip(COLOURS, named, strict=False)):
        at = TOP + 12 + LINE * place
        parts.append(f'<path class="named" stroke="{colour}" d="M{WIDTH - RIGHT + 14},{at - 4}h18"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 38}" y="{at}">{escape(row.arm)}</text>')
    return "".join([*parts, "</svg>\n"])


def _area(row: ArmRow) -> float:
    return sum(value for value in row.excess if value is not None)


def _curve(row: ArmRow, x: PlotAxis, y: PlotAxis, colour: str, more: str) -> str:
    points = [(n, value) for n, value in enumerate(row.excess, 1) if value is not None]
    path = "M" + "L".join(f"{x(n)},{y(value)}" for n, value in points)
    return f'<path{more} stroke="{colour}" d="{path}"><title>{escape(row.arm)}</title></path>'
