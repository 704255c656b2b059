"""Pages of the suite's records: figures by family, shares of a copy, searches, the estimate, and every task."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results.record_files import RecordFile
from benchmarks.results.tables import day, days, interval, mean, microseconds, share, table
from benchmarks.suite import figures
from benchmarks.suite.figures import Task, fast, median_of
from benchmarks.suite.records import Measured, merge
from benchmarks.suite.tasks import suite_named
from hipwright.evaluation.task_suite import TaskSuite

SIDES = ("eager", "compile", "max-autotune", "copy")


def suite_page(file: RecordFile) -> list[str]:
    """Sections of Markdown: for each card of the records its figures and tasks."""
    sections = []
    rows, suite = file.measured(), suite_named(file.about.suite)
    for device in sorted({row.device for row in rows}):
        held = merge([row for row in rows if row.device == device])
        tasks = figures.tasks_of(held)
        sections += [
            f"## {device}",
            headline(held, tasks, suite),
            f"### By family\n\n{_families(tasks)}",
            f"### Not certainly faster than the better of torch.compile and max-autotune\n\n{_behind(tasks)}",
            f"### Searches\n\n{_searches(tasks)}",
            f"### Static estimate\n\n{_estimates(held)}",
            f"### By task\n\n{_TASKS}\n\n{_tasks(tasks)}",
        ]
    return sections


def suite_summary(file: RecordFile) -> tuple[str, str, str]:
    """(cards, dates, the main figures) for the index."""
    rows = file.measured()
    tasks = figures.tasks_of(merge(rows))
    text = (
        f"{len(tasks)} tasks; {mean(figures.mean(tasks, 'eager'))} times eager, "
        f"{mean(figures.mean(tasks, 'compiled'))} times the better of torch.compile and max-autotune"
    )
    return ", ".join(sorted({row.device for row in rows})), days(day(row.clock) for row in rows), text


def headline(rows: Sequence[Measured], tasks: Sequence[Task], suite: TaskSuite) -> str:
    """The figures over all tasks, as a list."""
    passed = [task.best for task in tasks if task.best is not None and task.best.passed]
    where = sorted({f"{row.architecture}, torch {row.torch}" for row in rows})
    eager = [row.sides["eager"].speedup for row in passed if "eager" in row.sides]
    lines = [
        f"{'; '.join(where)}; {days(day(row.clock) for row in rows)}",
        f"{len(tasks)} tasks, of which {len(passed)} are right and timed; {_searched(tasks)} were searched too",
        f"times eager: {mean(figures.mean(tasks, 'eager'))}; certainly faster: {share(fast(tasks, 'eager'))}; "
        f"the slowest {min(eager, default=0):.2f}",
        f"times the better of torch.compile and max-autotune: {mean(figures.mean(tasks, 'compiled'))}; "
        f"certainly faster: {share(fast(tasks, 'compiled'))}",
    ]
    if copies := figures.shares(tasks, suite):
        streams = [one for one, _, gathers in copies if not gathers]
        picks = [one for one, _, gathers in copies if gathers]
        lines.append(
            f"{len(copies)} tasks bound by memory with over 256 MB of traffic: share of a copy's speed "
            f"{_low(streams)}; gathers, segments and top-k {_low(picks)}"
        )
    if small := [ratio for ratio, _ in figures.small(tasks)]:
        lines.append(
            f"{len(small)} small tasks (roofline under 10 µs): torch.compile's end-to-end latency is "
            f"{figures.log_mean(small):.2f} times ours (geometric mean), the least {min(small):.2f}"
        )
    return "\n".join(f"- {line}" for line in lines)


def first_page(file: RecordFile) -> list[str]:
    """Sections of Markdown: the seconds from opening a task to its first verified program."""
    rows = sorted(merge(file.measured()), key=lambda row: row.task)
    lines = [[f"`{row.task}`", f"{row.first_s or 0.0:.1f}", row.device, day(row.clock)] for row in rows]
    return [table(("task", "seconds", "card", "date"), lines)]


def first_summary(file: RecordFile) -> tuple[str, str, str]:
    """(cards, dates, the main figures) for the index."""
    rows = merge(file.measured())
    seconds = [row.first_s or 0.0 for row in rows]
    text = f"{len(rows)} tasks; median {median_of(seconds):.1f} s, {min(seconds):.1f} to {max(seconds):.1f} s"
    return ", ".join(sorted({row.device for row in rows})), days(day(row.clock) for row in rows), text


# ---------------------------------------------------------------- sections

_TASKS = (
    "The faster of the first answer and the search's best. Microseconds of our program; then the time of each baseline "
    "over ours, with 95 % intervals (below 1: ours is slower)."
)


def _families(tasks: Sequence[Task]) -> str:
    by_family: dict[str, list[Task]] = {}
    for task in tasks:
        by_family.setdefault(task.family, []).append(task)
    heads = ("family", "tasks", "times eager", "times the better compiler", "faster than eager", "than the compiler")
    lines = [
        [
            f"`{name}`" if name != "all" else name,
            len(of),
            mean(figures.mean(of, "eager")),
            mean(figures.mean(of, "compiled")),
            share(fast(of, "eager")),
            share(fast(of, "compiled")),
        ]
        for name, of in [*sorted(by_family.items()), ("all", list(tasks))]
    ]
    return table(heads, lines)


def _behind(tasks: Sequence[Task]) -> str:
    named = {task.name: figures.versus(task.best, "compiled") for task in tasks}
    found = sorted((one.speedup, name) for name in figures.not_faster(tasks) if (one := named[name]) is not None)
    return ", ".join(f"`{name}` {speedup:.2f}" for speedup, name in found) or "none"


def _searches(tasks: Sequence[Task]) -> str:
    points = figures.curves(tasks)
    if not points:
        return "No task was searched."
    lines = [[step, interval(value, bounds)] for step, value, bounds in points]
    closed = [one for one, _ in figures.gaps(tasks)]
    half = [f"`{name}`" for one, name in figures.gaps(tasks) if one >= 0.5]
    gap = (
        f"{len(closed)} of the first answers were under 85 % of the roofline (of a copy, where memory bounds). A "
        f"search closed at least half of the gap in {len(half)} ({', '.join(half)}); the median closed "
        f"{median_of(closed):.0%}."
    )
    return f"{table(('evaluations', 'best of the search over its first answer'), lines)}\n\n{gap}"


def _estimates(rows: Sequence[Measured]) -> str:
    heads = ("microseconds by", "programs", "tasks", "rank correlation", "within a task", "off by (median)")
    lines = [
        [name, one.programs, one.tasks, f"{one.overall:.2f}", _number(one.within), f"{one.ratio:.2f}x"]
        for qualities in figures.estimate_qualities(rows).values()
        for name, one in qualities.items()
    ]
    return table(heads, lines) if lines else "Too few programs."


def _tasks(tasks: Sequence[Task]) -> str:
    lines = []
    for task in tasks:
        if (row := task.best) is not None and row.passed:
            cells = [interval(one.speedup, one.interval) if (one := row.sides.get(side)) else "" for side in SIDES]
            lines.append(
                [f"`{task.name}`", microseconds(1e3 * (row.median_ms or 0)), *cells, row.stage, day(row.clock)]
            )
        elif row is not None:
            lines.append([f"`{task.name}`", row.status, *[""] * len(SIDES), row.stage, day(row.clock)])
    return table(("task", "µs", *SIDES, "stage", "date"), lines)


def _searched(tasks: Sequence[Task]) -> int:
    return sum(task.search is not None for task in tasks)


def _low(values: Sequence[float]) -> str:
    return f"median {median_of(values):.2f}, least {min(values):.2f}" if values else "none"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
