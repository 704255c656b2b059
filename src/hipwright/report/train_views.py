"""The words and tables of a training's report, for the page and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hipwright.report.train_data import TrainingFolder, fast_names, pooled
from hipwright.report.train_plots import triple

Arms = list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]
"""(an arm's row of all seeds, the rows of its seeds)."""


def describe_clock(data: TrainingFolder) -> dict[str, str]:
    """{"tone", "badge", "text"}: whether speeds are measured or estimated."""
    if data.clock == "device":
        where = f"{data.device} (HIP on NVIDIA)" if "nvidia" in data.device.lower() else data.device
        return {
            "tone": "good",
            "badge": "measured",
            "text": f"Speeds were measured on {where}, in pairs with the baseline.",
        }
    if data.clock == "estimate":
        text = "No program was timed: every speed and every reward for speed is a static estimate of its build."
        return {"tone": "unsure", "badge": "ESTIMATE", "text": text}
    return {"tone": "unsure", "badge": "nothing timed", "text": "No program was timed, and no speed is claimed."}


def labelled(title: str, metric: str, clock: str) -> str:
    """A heading, marked ESTIMATE where its figures depend on estimated speeds."""
    timed = metric.startswith("fast_") or metric in ("speedup", "roofline", "reward")
    return f"{title} (ESTIMATE)" if timed and clock == "estimate" else title


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of the evaluation table, in order; columns without data are left out."""
    names = ["compiled", "correct", *fast_names(rows), "roofline", "reward", "speedup"]
    return [name for name in names if any(triple(row.get(name)) for row in rows)]


def by_split(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, Arms]]:
    """The rows of each split, with seeds under their arm."""
    found: dict[str, Arms] = {}
    for row in pooled(rows):
        seeds = [one for one in rows if one is not row and all(one.get(k) == row.get(k) for k in ("arm", "split"))]
        found.setdefault(str(row.get("split") or "all tasks"), []).append((row, seeds))
    return list(found.items())


def by_level(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """The rows of each level of difficulty."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(str(row.get("level")), []).append(row)
    return list(found.items())


def describe_interval(value: Any, metric: str = "") -> tuple[str, str]:
    """(figure, interval) of a cell as text; ("–", "") for none."""
    found = triple(value)
    if found is None:
        return "–", ""
    if metric in ("reward", "speedup"):
        return f"{found[0]:.2f}{'×' if metric == 'speedup' else ''}", f"{found[1]:.2f} to {found[2]:.2f}"
    return f"{100 * found[0]:.0f} %", f"{100 * found[1]:.0f} to {100 * found[2]:.0f}"


def signed(value: float, digits: int) -> str:
    """Formats a difference with its sign; 0 has none."""
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text[1:]


def differences(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """{"metrics", "splits": [(split, {"one arm - another": {metric: cell}})]}; a cell has text, interval and tone."""
    metrics = list(dict.fromkeys(str(one.get("metric")) for one in found))
    splits: dict[str, dict[str, dict[str, dict[str, str]]]] = {}
    for one in found:
        if (difference := triple(one.get("difference"))) is not None:
            metric, arms = str(one.get("metric")), f"{one.get('better')} − {one.get('worse')}"
            cell = _difference(difference, metric)
            splits.setdefault(str(one.get("split")), {}).setdefault(arms, {})[metric] = cell
    return {"metrics": metrics, "splits": list(splits.items())}


def _difference(difference: tuple[float, float, float], metric: str) -> dict[str, str]:
    """tone: "good" or "bad" where the interval does not hold 0."""
    scale, unit, digits = (1, "", 2) if metric == "reward" else (100, " pp", 0)
    value, low, high = (signed(scale * one, digits) for one in difference)
    tone = "good" if difference[1] > 0 else "bad" if difference[2] < 0 else ""
    return {"text": value + unit, "interval": f"{low} to {high}", "tone": tone}
