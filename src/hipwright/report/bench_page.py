"""bench.html: a benchmark on one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hipwright import __version__
from hipwright.evaluation.bench import BenchRow
from hipwright.evaluation.figures import worst
from hipwright.report import bench_model, bench_plots, formatting, html


@dataclass(frozen=True)
class BenchPage:
    """The data of the page.

    figures: of hipwright.evaluation.figures; expected: the number of rows of a complete run; model: of
    hipwright.evaluation.model_figures, None where no model was measured; form: the tasks' format and its own rules.
    """

    title: str
    mode: str
    source: str
    targets: tuple[str, ...]
    complete: bool
    expected: int
    figures: Mapping[str, Any]
    rows: tuple[BenchRow, ...]
    not_measured: tuple[str, ...]
    command: str
    model: Mapping[str, Any] | None = None
    form: Mapping[str, str] | None = None


def render_bench(page: BenchPage) -> str:
    """Renders the page."""
    text: str = html.environment().get_template("bench.html.j2").render(**bench_views(page))
    return text


def bench_views(page: BenchPage) -> dict[str, Any]:
    """What the page shows: its figures, tables and plots by the names of the template."""
    baselines = list(page.figures["fast_p"] or {})
    return {
        "page": page,
        "version": __version__,
        "devices": sorted({f"{row.device} ({row.timed_on})" for row in page.rows if row.timed_on}),
        "tiles": _tiles(page.figures, page.model),
        "fast": _fast_table(page.figures),
        "means": _means(page.figures),
        "categories": _categories(page.figures),
        "by_format": "by_format" in page.figures,
        "statuses": _statuses(page.rows),
        "worst": worst(page.rows),
        "baselines": baselines,
        "curve": bench_plots.fast_curve(page.rows, baselines),
        "bars_of": {name: bench_plots.speedup_bars(page.rows, name) for name in baselines},
        "roofline": bench_plots.roofline_bars(page.rows),
        "tone": row_tone,
        "model": _model(page.model) if page.model is not None else None,
    }


def row_tone(row: BenchRow) -> str:
    """The colour class of a row's status."""
    return formatting.UNSURE if not row.judged else formatting.tone(row.status)


def _model(model: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a measured model: a row per k, kinds of answers, costs."""
    found = bench_model.curves(model)
    return {
        "heads": list(found),
        "rows": [(k, [bench_model.describe_share(curve[k]) for curve in found.values()]) for k in model["pass_at"]],
        "answers": model["answers"],
        "mended": model["mended"],
        "cost": bench_model.cost_lines(model),
        "denominator": model["denominator"],
    }


def _categories(figures: Mapping[str, Any]) -> list[dict[str, str]]:
    """The table of categories: a row each, its cells as text."""
    rows = []
    for name, found in figures.get("categories", {}).items():
        cells = {"category": name, "tasks": str(found["tasks"])}
        cells |= {key: _describe_share(found[key]) for key in ("compiled", "correct")}
        cells["by_format"] = _describe_share(found["by_format"]) if found["by_format"] else "–"
        fast = (f"{formatting.percent(share['share'])} {base}" for base, share in (found["fast_1"] or {}).items())
        rows.append(cells | {"fast_1": ", ".join(fast) or "–"})
    return rows


def _tiles(figures: Mapping[str, Any], model: Mapping[str, Any] | None) -> list[dict[str, str]]:
    tiles = []
    for k in dict.fromkeys(("1", str(model["samples"]))) if model is not None else ():
        assert model is not None
        one = model["pass_at"][k]
        value, note = formatting.percent(one["value"]), bench_model.describe_share(one)
        tiles.append({"label": f"pass@{k}", "value": value, "note": note})
    tiles += [_share_tile("compiled", figures["compiled"]), _share_tile("correct", figures["correct"])]
    if "strict_correct" in figures:
        tiles.append(_share_tile("correct, strict rule", figures["strict_correct"]))
    if "by_format" in figures:
        tiles.append(_share_tile("correct, the format's tolerance", figures["by_format"]))
    for name, levels in (figures["fast_p"] or {}).items():
        tiles.append(_share_tile(f"fast_1 against {name}", levels["1"]))
    for name, means in (figures["geometric_mean"] or {}).items():
        if (mean := means["of_correct"]) is not None:
            low, high = mean["interval"]
            note = f"geometric mean of {mean['rows']} correct, 95 % interval {low:.2f} to {high:.2f}"
            tiles.append({"label": f"speedup over {name}", "value": f"{mean['value']:.2f}×", "note": note})
    if figures["coverage"]["rows"]:
        note = f"mean of {figures['coverage']['rows']} correct"
        tiles.append({"label": "coverage", "value": formatting.percent(figures["coverage"]["mean"]), "note": note})
    return tiles


def _share_tile(label: str, share: Mapping[str, Any]) -> dict[str, str]:
    return {"label": label, "value": formatting.percent(share["share"]), "note": _describe_share(share)}


def _describe_share(share: Mapping[str, Any]) -> str:
    low, high = share["interval"]
    return f"{share['count']} of {share['total']}, 95 % interval {100 * low:.0f} to {100 * high:.0f} %"


def _fast_table(figures: Mapping[str, Any]) -> dict[str, list[dict[str, str]]]:
    """{baseline: a cell per p}; KernelBench's own rule has separate rows."""
    table = {}
    for key, suffix in (("fast_p", ""), ("fast_p_point", ", KernelBench's rule")):
        for name, levels in (figures.get(key) or {}).items():
            table[name + suffix] = [
                {"p": p, "value": formatting.percent(share["share"]), "note": _describe_share(share)}
                for p, share in levels.items()
            ]
    return table


def _means(figures: Mapping[str, Any]) -> list[dict[str, str]]:
    found = []
    for name, means in (figures["geometric_mean"] or {}).items():
        for key, what in (
            ("of_correct", "correct programs"),
            ("of_all", f"all, a failure counted as {means['failures_count_as']}×"),
        ):
            if (mean := means[key]) is not None:
                low, high = mean["interval"]
                found.append(
                    {
                        "baseline": name,
                        "over": f"{mean['rows']} {what}",
                        "value": f"{mean['value']:.3f}×",
                        "interval": f"{low:.3f} to {high:.3f}",
                        "capped": str(mean["capped"]),
                    }
                )
    return found


def _statuses(rows: Sequence[BenchRow]) -> list[dict[str, Any]]:
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        name = row.status if row.judged else f"{row.status} ({row.fault} at fault)"
        counts[name, row_tone(row)] = counts.get((name, row_tone(row)), 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return [
        {"status": name, "tone": tone, "count": count, "share": count / len(rows)} for (name, tone), count in ordered
    ]
