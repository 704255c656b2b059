"""The report of a suite's records, as text."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.suite import figures
from benchmarks.suite.figures import Task, fast, gaps, mean, median_of, shares, small, tasks_of
from benchmarks.suite.records import Measured, merge
from hipwright.evaluation.task_suite import TaskSuite
from hipwright.measure.fastp import GeometricMean, TaskShare

NONE = "-"


def text(rows: Sequence[Measured], suite: TaskSuite) -> str:
    """Everything: who was measured, speedups a family, shares of a copy, small tasks, searches, the estimate."""
    held = merge(rows)
    tasks = tasks_of(held)
    parts = [head(held, tasks), families(tasks), memory(tasks, suite), latency(tasks), searches(tasks), estimates(held)]
    return "\n\n".join(part for part in parts if part) + "\n"


SIDES = ("eager", "compile", "max-autotune", "copy")


def table(rows: Sequence[Measured]) -> str:
    """Markdown: a row for each task that was timed, its better stage; the other side's time over ours."""
    lines = [f"| task | us | {' | '.join(SIDES)} |", "|---|---|---|---|---|---|"]
    for task in tasks_of(merge(rows)):
        if (row := task.best) is not None and row.passed:
            us = (row.median_ms or 0.0) * 1e3
            cells = [_beside(row, side) for side in SIDES]
            lines.append(f"| `{task.name}` | {f'{us:.1f}' if us < 10 else f'{us:,.0f}'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _beside(row: Measured, side: str) -> str:
    if (found := row.sides.get(side)) is None:
        return ""
    return f"{found.speedup:.2f} [{found.interval[0]:.2f}, {found.interval[1]:.2f}]"


def head(rows: Sequence[Measured], tasks: Sequence[Task]) -> str:
    """Devices, counts and failures."""
    where = ", ".join(sorted({f"{row.device} ({row.architecture}, torch {row.torch})" for row in rows if row.device}))
    best = [task.best for task in tasks]
    right = sum(row is not None and row.passed for row in best)
    right_away = [row for row in rows if row.first_s is not None and row.status == "pass"]
    timed = {row.task: row for stage in ("first", "opened") for row in right_away if row.stage == stage}
    seconds = [row.first_s or 0.0 for row in timed.values()]
    lanes = max((row.lanes for row in timed.values()), default=1)
    lines = [
        f"{len(tasks)} tasks on {where or 'no device'}: {right} right and timed, {len(tasks) - right} not",
        f"time to the first verified program: median {median_of(seconds):.1f} s, worst "
        f"{max(seconds, default=float('nan')):.1f} s, of {len(seconds)} tasks (up to {lanes} side by side)",
    ]
    lines += [f"  {row.task}: {row.status}, {row.message[:120]}" for row in best if row and not row.passed]
    return "\n".join(lines)


def families(tasks: Sequence[Task]) -> str:
    """Geometric means and fast_1 a family and over all."""
    by_family: dict[str, list[Task]] = {}
    for task in tasks:
        by_family.setdefault(task.family, []).append(task)
    titles = ("vs eager", "vs torch.compile (better)", "fast_1", "fast_1 c")
    lines = [f"{'family':20} tasks  {titles[0]:>24}  {titles[1]:>26}  {titles[2]:>7}  {titles[3]:>8}"]
    for name, of in [*sorted(by_family.items()), ("all", list(tasks))]:
        lines.append(
            f"{name:20} {len(of):5}  {_mean(mean(of, 'eager')):>24}  {_mean(mean(of, 'compiled')):>26}  "
            f"{_share(fast(of, 'eager')):>7}  {_share(fast(of, 'compiled')):>8}"
        )
    slow = [(row.sides["eager"].speedup, row.task) for t in tasks if (row := t.best) and "eager" in row.sides]
    lines += _worst("slower than 0.95x eager", [(s, n) for s, n in sorted(slow) if s < 0.95], "x")
    compiled = [(found, t.name) for t in tasks if (found := figures.versus(t.best, "compiled")) is not None]
    behind = sorted((one.speedup, name) for one, name in compiled if one.interval[0] <= 1.0)
    lines += _worst("not faster than torch.compile (better)", behind, "x")
    return "\n".join(lines)


def memory(tasks: Sequence[Task], suite: TaskSuite) -> str:
    """Tasks that are bound by memory against a copy of as many bytes."""
    found = shares(tasks, suite)
    if not found:
        return "no task bound by memory with more than 256 MB of traffic was timed beside a copy"
    streams = [(one, name) for one, name, picks in found if not picks]
    picks = [(one, name) for one, name, picks in found if picks]
    every = [one for one, _, _ in found]
    lines = [
        f"bound by memory (under 10 operations a byte, over 256 MB): {len(found)} tasks, share of a copy's speed: "
        f"median {median_of(every):.1%}, worst {min(every):.1%}"
    ]
    lines += _worst("under 75 %", [(s, n) for s, n in streams if s < 0.75], "")
    lines += _worst("gathers, segments, top-k under 50 %", [(s, n) for s, n in picks if s < 0.5], "")
    return "\n".join(lines)


def latency(tasks: Sequence[Task]) -> str:
    """End-to-end latency of launch-bound tasks against torch.compile."""
    found = small(tasks)
    if not found:
        return ""
    ratios = [ratio for ratio, _ in found]
    lines = [
        f"small tasks (roofline under 10 us): {len(found)}, torch.compile's end-to-end latency / ours: geometric mean "
        f"{figures.log_mean(ratios):.2f}x, worst {min(ratios):.2f}x"
    ]
    return "\n".join([*lines, *_worst("slower than torch.compile", [(r, n) for r, n in found if r < 1.0], "x")])


def searches(tasks: Sequence[Task]) -> str:
    """The curve, and the gaps that searches closed."""
    points = figures.curves(tasks)
    if not points:
        return ""
    count = sum(task.search is not None for task in tasks)
    lines = [f"searches of {count} tasks: best speedup over the first answer after n evaluations (geometric mean)"]
    lines += [f"  {step:3}  {value:.3f}x  [{low:.3f}, {high:.3f}]" for step, value, (low, high) in points]
    closed = [one for one, _ in gaps(tasks)]
    half = sum(one >= 0.5 for one in closed)
    lines.append(
        f"first answers under 85 % of the roofline: {len(closed)}; at least half of the gap closed in {half}, "
        f"median {median_of(closed):.0%}"
    )
    return "\n".join(lines)


def estimates(rows: Sequence[Measured]) -> str:
    """Rank correlation of the static estimate with what was measured, and of a model fitted to it."""
    lines = []
    for device, qualities in figures.estimate_qualities(rows).items():
        one = qualities["estimate"]
        lines.append(
            f"static estimate against {device}, {one.programs} programs of {one.tasks} tasks (Spearman's rank):"
        )
        for name, one in qualities.items():
            inside = NONE if one.within is None else f"{one.within:.3f}"
            lines.append(f"  {name:24} over all {one.overall:.3f}, within a task {inside}, off by {one.ratio:.2f}x")
    return "\n".join(lines)


def _worst(what: str, found: Sequence[tuple[float, str]], unit: str) -> list[str]:
    values = [f"{name} {value:.2f}{unit}" for value, name in found[:12]]
    return [f"  {what}: {len(found)}: {', '.join(values)}"] if found else []


def _mean(found: GeometricMean | None) -> str:
    return f"{found.value:.2f}x [{found.interval[0]:.2f}, {found.interval[1]:.2f}]" if found else NONE


def _share(found: TaskShare) -> str:
    return f"{found.share:.0%}" if found.total else NONE
