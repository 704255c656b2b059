"""First contact with a GPU on one self-contained page: each step, what failed and what to do, and the programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any

from hipwright.report import formatting, html

TONES = {"ok": formatting.GOOD, "failed": formatting.BAD, "skipped": formatting.UNSURE}
LOG_LIMIT = 20_000  # characters of a step's output on the page; the archive holds all
_RATES = {"copy": "copy", "read": "read", "write": "write"}


def render_contact(report: Mapping[str, Any]) -> str:
    """Renders a `hipwright.api.contact.ContactReport` as plain data."""
    steps = [_step(step) for step in report["steps"]]
    text: str = (
        html.environment()
        .get_template("contact.html.j2")
        .render(
            report=report,
            steps=steps,
            tiles=_tiles(report),
            failed=[step for step in steps if step["status"] != "ok"],
            rows=[_row(row, simulated=report["simulated"]) for row in report["rows"]],
        )
    )
    return text


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    facts = [(name.replace("_", " "), fact_text(name, value)) for name, value in step["facts"].items()]
    output = step["output"]
    cut = output[:LOG_LIMIT] + (f"\n[{len(output) - LOG_LIMIT} more characters]" if len(output) > LOG_LIMIT else "")
    return {**step, "tone": TONES[step["status"]], "facts": facts, "output": cut}


def fact_text(name: str, value: Any) -> str:
    """A figure in words, with its unit by its name."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {fact_text(name, one)}" for key, one in value.items())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if name in _RATES:
        return f"{value / 1e9:,.0f} GB/s"
    if name == "flops":
        return f"{value / 1e12:.3g} TFLOP/s"
    if name.endswith("_of_datasheet"):
        return formatting.percent(value)
    if name.endswith("bytes"):
        return formatting.byte_count(value)
    return formatting.number(value)


def _tiles(report: Mapping[str, Any]) -> list[dict[str, str]]:
    steps, rows = report["steps"], report["rows"]
    done = sum(step["status"] == "ok" for step in steps)
    tiles = [{"label": "steps", "value": f"{done} of {len(steps)}", "note": "did what they must"}]
    if rows:
        right = sum(bool(row["correct"]) for row in rows)
        tiles.append({"label": "programs", "value": f"{right} of {len(rows)}", "note": "right on secret inputs"})
    for name in ("eager", "compile"):
        ratios = [row["speedups"][name]["speedup"] for row in rows if name in row["speedups"]]
        if ratios:
            mean = exp(sum(map(log, ratios)) / len(ratios))
            note = f"geometric mean of {len(ratios)} programs"
            tiles.append({"label": f"against {name}", "value": f"{mean:.3g}×", "note": note})
    seconds = sum(step["seconds"] for step in steps)
    return [*tiles, {"label": "time", "value": formatting.seconds(seconds), "note": report["started"]}]


def _row(row: Mapping[str, Any], *, simulated: bool) -> dict[str, Any]:
    speedups = {name: _speedup(row["speedups"].get(name)) for name in ("eager", "compile")}
    if simulated:  # neither good nor bad: they are the processor's
        speedups = {name: (text, "neutral") for name, (text, _) in speedups.items()}
    tone = formatting.tone(row["status"])
    why = row["message"] or row["not_timed"]
    return {"task": row["task"], "status": row["status"], "tone": tone, "ms": row["median_ms"], "why": why, **speedups}


def _speedup(known: Mapping[str, Any] | None) -> tuple[str, str]:
    """(text, tone)."""
    if known is None:
        return "–", "neutral"
    low, high = _interval(known["interval"])
    tone = formatting.GOOD if low > 1 else formatting.BAD if high < 1 else formatting.UNSURE
    return f"{known['speedup']:.2f}× ({low:.2f} to {high:.2f})", tone


def _interval(interval: Sequence[float]) -> tuple[float, float]:
    low, high = interval
    return low, high
