"""The geometry of a run's plots: score over proposals, and lineage. The template draws them, escaping all labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10
from statistics import geometric_mean

from hipwright.archive import TrialDetail
from hipwright.measure.gain import Gain
from hipwright.report.formatting import number
from hipwright.report.ticks import Tick

WIDTH = 960
SCORE_HEIGHT = 260
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 18, 36
ROW, WIDE_ROW = 30, 64  # pixels between two rows of the lineage: many, few
NOT_EVALUATED = ("duplicate", "not proposed", "pending")  # statuses of a trial without an evaluation
MAX_LINEAGE = 160  # nodes; beyond that only kept programs and their parents are drawn


@dataclass(frozen=True)
class Point:
    """One proposal on a plot. kind: best, kept, rejected or failed; label: the tooltip; number: the proposal's."""

    x: float
    y: float
    kind: str
    label: str
    number: int = -1


@dataclass(frozen=True)
class ScorePlot:
    """Score over proposals: the points, the best so far as an SVG path, the baseline's line, and both axes."""

    points: list[Point]
    best_path: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    kind: str
    baseline: Tick | None = None
    width: int = WIDTH
    height: int = SCORE_HEIGHT


@dataclass(frozen=True)
class Edge:
    """The SVG path from a parent to its child. main: it leads to the best program."""

    path: str
    main: bool


@dataclass(frozen=True)
class Lineage:
    """The tree of programs: x is the proposal's number, y its row."""

    points: list[Point]
    edges: list[Edge]
    x_ticks: list[Tick]
    left_out: int
    height: int
    width: int = WIDTH


def kind_of(proposal: TrialDetail) -> str:
    """The outcome of a proposal: best, kept, rejected, failed, or skipped (not evaluated)."""
    if proposal.status in NOT_EVALUATED:
        return "skipped"
    if proposal.status != "pass":
        return "failed"
    if proposal.best:
        return "best"
    return "kept" if proposal.kept else "rejected"


def label_of(proposal: TrialDetail) -> str:
    """The tooltip of a proposal."""
    score = f", {proposal.score:.2f} µs ({proposal.score_kind})" if proposal.score is not None else ""
    why = proposal.reason or proposal.message
    return f"#{proposal.number} {proposal.operator}: {proposal.status}{score}{' — ' + why if why else ''}"


def score_plot(proposals: Sequence[TrialDetail], gains: Sequence[Gain] = ()) -> ScorePlot | None:
    """Score over proposals, on a logarithmic axis over more than a decade; None without a score.

    Measured and estimated scores never share an axis: if anything was measured, only measurements are drawn. gains:
    their baseline of the same kind is a line.
    """
    scored = [p for p in proposals if p.score is not None and p.score > 0 and p.status == "pass"]
    kinds = {p.score_kind for p in scored}
    kind = next((kind for kind in ("measured", "simulated") if kind in kinds), "estimate")
    if kind != "estimate":
        scored = [p for p in scored if p.score_kind == kind]
    if not scored:
        return None
    last = max(p.number for p in proposals)
    low, high = min(p.score or 0.0 for p in scored), max(p.score or 0.0 for p in scored)
    before = _baseline(gains, kind)
    y_of, y_ticks = _scale(min(low, before[1]), max(high, before[1])) if before else _scale(low, high)
    points = [Point(_x(p.number, last), y_of(p.score or low), kind_of(p), label_of(p)) for p in scored]
    floor_y = SCORE_HEIGHT - BOTTOM
    points += [Point(_x(p.number, last), floor_y, "failed", label_of(p)) for p in proposals if kind_of(p) == "failed"]
    line = Tick(y_of(before[1]), f"{before[0]}, {before[1]:.3g} µs") if before else None
    return ScorePlot(points, _best_path(scored, last, y_of), _number_ticks(last), y_ticks, kind, line)


def _baseline(gains: Sequence[Gain], kind: str) -> tuple[str, float] | None:
    """The first baseline of that kind and its geometric mean over the targets, in microseconds."""
    names = [one.baseline for one in gains if one.kind == kind]
    times = [one.baseline_us for one in gains if one.kind == kind and one.baseline == names[0] and one.baseline_us > 0]
    return (names[0], geometric_mean(times)) if times else None


def _best_path(scored: Sequence[TrialDetail], last: int, y_of: _Scale) -> str:
    """The SVG path of the best score so far."""
    parts: list[str] = []
    best = float("inf")
    for proposal in sorted(scored, key=lambda p: p.number):
        score = proposal.score or 0.0
        if score < best:
            x, y = _x(proposal.number, last), y_of(score)
            parts.append(f"H{x:.1f}V{y:.1f}" if parts else f"M{x:.1f},{y:.1f}")
            best = score
    return "".join(parts) + f"H{_x(last, last):.1f}"


class _Scale:
    """A vertical axis over [low, high], linear or logarithmic; smaller values lie lower."""

    def __init__(self, low: float, high: float, log: bool) -> None:
        self.log = log
        self.low, self.high = (log10(low), log10(high)) if log else (low, high)
        if self.high <= self.low:
            pad = abs(self.low) * 0.1 or 1.0
            self.low, self.high = self.low - pad, self.high + pad

    def __call__(self, value: float) -> float:
        share = ((log10(value) if self.log else value) - self.low) / (self.high - self.low)
        inner = SCORE_HEIGHT - TOP - BOTTOM - 14  # failures are drawn below
        return round(TOP + (1 - share) * inner, 1)


def _scale(low: float, high: float) -> tuple[_Scale, list[Tick]]:
    log = high > 4 * low
    scale = _Scale(low, high, log)
    ticks = [scale.low + (scale.high - scale.low) * i / 4 for i in range(5)]
    values = [10**t if log else t for t in ticks]
    span = values[-1] - values[0]
    digits = max(0, min(4, 1 - floor(log10(span / 4))))
    labels: dict[str, float] = {number(float(f"{v:.2g}"), 2) if log else f"{v:.{digits}f}": v for v in values}
    return scale, [Tick(scale(v), text) for text, v in labels.items()]


def _x(number: int, last: int) -> float:
    return round(LEFT + 8 + (WIDTH - LEFT - RIGHT - 16) * number / max(last, 1), 1)


def _number_ticks(last: int) -> list[Tick]:
    step = next(s * 10**e for e in range(9) for s in (1, 2, 5) if last <= 10 * s * 10**e)
    return [Tick(_x(n, last), str(n)) for n in range(0, last + 1, step)]


# ---------------------------------------------------------------- lineage


def lineage(proposals: Sequence[TrialDetail]) -> Lineage | None:
    """The tree of first parents; None for fewer than two programs."""
    shown = _shown(proposals)
    evaluated = sum(kind_of(p) != "skipped" for p in proposals)
    if len(shown) < 2:
        return None
    first: dict[str, TrialDetail] = {}
    for proposal in shown:
        first.setdefault(proposal.program, proposal)
    main = _path_to_best(shown, first)
    row = _rows(shown, first, main)
    last = max(p.number for p in proposals)
    spacing = max(ROW, min(WIDE_ROW, 200 // max(1, *row.values())))
    where = {p.number: (_x(p.number, last), TOP + spacing * row[p.number]) for p in shown}
    edges = []
    for proposal in shown:
        parent = _parent(proposal, first)
        if parent is not None:
            on_path = proposal.number in main and parent.number in main
            (x0, y0), (x1, y1) = where[parent.number], where[proposal.number]
            edges.append(Edge(f"M{x0},{y0}L{x1},{y1}", on_path))
    points = [Point(*where[p.number], kind_of(p), label_of(p), p.number) for p in shown]
    height = TOP + spacing * max(row.values()) + BOTTOM
    edges.sort(key=lambda edge: edge.main)
    return Lineage(points, edges, _number_ticks(last), evaluated - len(shown), height)


def _shown(proposals: Sequence[TrialDetail]) -> list[TrialDetail]:
    proposals = [p for p in proposals if kind_of(p) != "skipped"]
    if len(proposals) <= MAX_LINEAGE:
        return sorted(proposals, key=lambda p: p.number)
    kept = [p for p in proposals if p.kept or p.best]
    return sorted(kept[-MAX_LINEAGE:], key=lambda p: p.number)


def _parent(proposal: TrialDetail, first: dict[str, TrialDetail]) -> TrialDetail | None:
    for key in proposal.parents:
        parent = first.get(key)
        if parent is not None and parent.number < proposal.number:
            return parent
    return None


def _path_to_best(shown: Sequence[TrialDetail], first: dict[str, TrialDetail]) -> set[int]:
    node = next((p for p in reversed(shown) if p.best), None)
    path: set[int] = set()
    while node is not None and node.number not in path:
        path.add(node.number)
        node = _parent(node, first)
    return path


def _rows(shown: Sequence[TrialDetail], first: dict[str, TrialDetail], main: set[int]) -> dict[int, int]:
    """Assigns rows: one child continues its parent's row, the others take the lowest free row."""
    heir = _heirs(shown, first, main)
    row: dict[int, int] = {}
    taken_until: list[int] = []
    for proposal in shown:
        parent = _parent(proposal, first)
        if parent is not None and heir.get(parent.number) == proposal.number:
            place = row[parent.number]
        else:
            parents_row = -1 if parent is None else row[parent.number]  # a line in this row would cross siblings
            free = (i for i, end in enumerate(taken_until) if end < proposal.number and i != parents_row)
            place = next(free, len(taken_until))
            if place == len(taken_until):
                taken_until.append(-1)
        row[proposal.number] = place
        taken_until[place] = heir.get(proposal.number, proposal.number)
    return row


def _heirs(shown: Sequence[TrialDetail], first: dict[str, TrialDetail], main: set[int]) -> dict[int, int]:
    """The child that continues each parent's row: the one leading to the best, else the first kept one."""
    heir: dict[int, tuple[tuple[bool, bool], int]] = {}
    for proposal in shown:
        parent = _parent(proposal, first)
        if parent is not None:
            rank = (proposal.number in main, proposal.kept)
            if parent.number not in heir or rank > heir[parent.number][0]:
                heir[parent.number] = (rank, proposal.number)
    return {parent: number for parent, (_, number) in heir.items()}
