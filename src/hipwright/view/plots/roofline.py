"""The roofline of a program's kernels, in units of each architecture's own ceilings (Williams et al. 2009).

A kernel's estimate has the seconds that its instructions need at the full issue rate and the bytes that it must move
(hipwright.measure.estimate). Both axes are shares of ceilings, so that several architectures fit into one plot:

    x = seconds to issue / seconds to move the bytes at full bandwidth     (1: the ridge, where both are equal)
    y = seconds to issue / seconds of the kernel                           (the share of the issue rate that is used)

The roof is min(x, 1): a point on its slope moves bytes at full bandwidth, and one at its top issues without a pause.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log10

from hipwright.records import Evaluation
from hipwright.report.formatting import number, percent
from hipwright.report.ticks import Tick
from hipwright.targets import TARGETS
from hipwright.view.plots.axis import PixelAxis

WIDTH, HEIGHT = 960, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 24, 44
SHAPES = ("circle", "square", "diamond", "triangle")


@dataclass(frozen=True)
class RoofPoint:
    """One kernel on one architecture; shape: of its architecture."""

    x: float
    y: float
    shape: str
    label: str


@dataclass(frozen=True)
class Roofline:
    """The points, the roof as an SVG path, both axes, and the shape of each architecture."""

    points: list[RoofPoint]
    roof: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    shapes: list[tuple[str, str]]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT


@dataclass(frozen=True)
class _Kernel:
    target: str
    name: str
    x: float
    y: float
    bound: str
    seconds: float


def roofline(evaluation: Evaluation) -> Roofline | None:
    """The estimated kernels of every target; None where nothing was estimated."""
    found = _kernels(evaluation)
    if not found:
        return None
    xs, ys = [k.x for k in found], [k.y for k in found]
    x = PixelAxis(_decade(min(*xs, 0.1), -1), _decade(max(*xs, 10.0), 1), LEFT, WIDTH - RIGHT, log=True)
    y = PixelAxis(_decade(min(*ys, 0.1), -1), 1.0, HEIGHT - BOTTOM, TOP, log=True)
    names = list(dict.fromkeys(k.target for k in found))
    shape = {name: SHAPES[place % len(SHAPES)] for place, name in enumerate(names)}
    points = [RoofPoint(x(k.x), y(k.y), shape[k.target], _label(k)) for k in found]
    start = max(x.low, y.low)
    roof = f"M{x(start)},{y(start)}L{x(1.0)},{y(1.0)}H{x(x.high)}"
    return Roofline(points, roof, x.ticks(), y.ticks(), list(shape.items()))


def _kernels(evaluation: Evaluation) -> list[_Kernel]:
    found = []
    for target, result in evaluation.targets.items():
        architecture = TARGETS.architecture(target)
        for row in result.estimate.detail if result.estimate and architecture else ():
            issue, moved, seconds = (_figure(row.get(key)) for key in ("issue_seconds", "bytes", "seconds"))
            if architecture and row.get("kind") == "kernel" and issue > 0 and moved > 0 and seconds > 0:
                balance = issue * architecture.bandwidth / moved
                bound = str(row.get("bound", ""))
                found.append(_Kernel(target, str(row.get("name")), balance, issue / seconds, bound, seconds))
    return found


def _figure(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _label(kernel: _Kernel) -> str:
    bandwidth = kernel.y / kernel.x
    return (
        f"{kernel.name} on {kernel.target}: ESTIMATE {number(kernel.seconds * 1e6)} µs, bound by {kernel.bound}, "
        f"{percent(kernel.y)} of the issue rate, {percent(bandwidth)} of the bandwidth"
    )


def _decade(value: float, way: int) -> float:
    """The power of ten at or below (way -1) or above (way 1) a value."""
    exponent = log10(value)
    return float(10.0 ** (-(-exponent // 1) if way > 0 else exponent // 1))
