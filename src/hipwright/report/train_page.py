"""report.html of a training: curves, fast_p by arm and split, rates, time, examples.

Sections without data are left out, so the page can be made after SFT alone. docs/training.md explains each figure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from hipwright import __version__
from hipwright.report import formatting, html, train_plots
from hipwright.report.train_data import TrainingFolder, TrainingLog, ends, mean, pooled, rank, rates, read, seconds_of
from hipwright.report.train_tables import explained, figures
from hipwright.report.train_views import (
    by_level,
    by_split,
    columns_of,
    describe_clock,
    describe_interval,
    differences,
    labelled,
)

__all__ = ["PAGE", "figures", "render", "write"]

PAGE = "report.html"
SFT_CURVES = (
    ("sft", "loss", "Loss on the training rows"),
    ("dpo", "loss", "Loss of preferences"),
    ("dpo", "rewards/accuracies", "Preferences in order"),
    ("dpo", "rewards/margins", "Margin of preferences"),
    ("eval", "loss", "Loss on held-out rows"),
)
RL_CURVES = (
    ("reward", "Reward"),
    ("correct", "Correct"),
    ("compiled", "Compiled"),
    ("speedup", "Speedup of correct programs"),
    ("zero_variance", "Groups with no variance"),
    ("hack", "Proven hacks"),
    ("infra", "Infrastructure faults"),
    ("infrastructure", "Infrastructure faults"),
    ("loss", "Loss of the update"),
    ("entropy", "Entropy, nats a token"),
    ("drift", "KL from the sampling policy"),
    ("kl", "KL from the policy it began with"),
    ("tokens", "Tokens an answer"),
    ("grad_norm", "Gradient norm"),
    ("rewards_an_hour", "Rewards an hour"),
)
GOOD_SHARES = {"correct", "compiled", "parsed"}
BAD_SHARES = {"zero_variance", "hack", "infra", "infrastructure"}
HELD_CURVES = (
    ("parsed", "Held-out answers that parse"),
    ("correct", "Held-out answers that are correct"),
    ("reward", "Held-out reward"),
)
PLOTTED = ("correct", "fast_1", "fast_1.2", "roofline", "reward")
"""The metrics of the evaluation that are plotted; the table has all."""
SHOWN_SAMPLES = 3
PHASES = ("generate", "submit", "wait", "wait_gpu", "train")
"""The phases of an RL step; the rest of its time is "other"."""


def write(folder: Path) -> Path:
    """Writes FOLDER/report.html. BadInput where there is nothing to report."""
    path = folder / PAGE
    path.write_text(render(read(folder)), encoding="utf-8")
    return path


def render(data: TrainingFolder) -> str:
    """Renders the page."""
    text: str = (
        html.environment().get_template("train.html.j2").render(code_css=html.code_css(), **training_views(data))
    )
    return text


def training_views(data: TrainingFolder) -> dict[str, Any]:
    """What the page shows: its figures, tables and plots by the names of the template."""
    palette = train_plots.colours(_arms(data))
    rows, levels = (data.evaluation.get(name) or [] for name in ("arms", "levels"))
    return {
        "data": data,
        "version": __version__,
        "title": data.path.resolve().name,
        "clock": describe_clock(data),
        "tiles": _tiles(data),
        "palette": palette,
        "curves": _curves(data, palette),
        "rows": by_split(rows),
        "seeds": len({row.get("seed") for row in rows}) > 1,
        "columns": columns_of(rows),
        "levels": by_level(levels),
        "level_columns": columns_of(levels),
        "dots": _dots(data, palette),
        "comparisons": differences(data.evaluation.get("comparisons") or []),
        "regret": data.evaluation.get("regret") or [],
        "rates": [(one.name, rates(one), one) for one in data.trainings if "rl" in one.curves],
        "time": [found for one in data.trainings if (found := _time(one))],
        "accounts": [(one.name, one.account) for one in data.trainings if one.account],
        "hole": _hole(data.hole),
        "examples": _examples(data.evaluation.get("examples") or []),
        "samples": [found for one in data.trainings if (found := _samples(one))],
        "settings": _flat(data.run),
        "meanings": explained(name for one in data.trainings for all_ in one.curves.values() for name in all_),
        "command": str(data.run.get("command") or ""),
        "interval": describe_interval,
        "labelled": labelled,
    }


def _arms(data: TrainingFolder) -> list[str]:
    evaluated = [str(row.get("arm")) for row in data.evaluation.get("arms") or []]
    return sorted(dict.fromkeys([*evaluated, *(one.arm for one in data.trainings)]), key=rank)


def _tiles(data: TrainingFolder) -> list[dict[str, str]]:
    tiles = []
    minutes = [one.minutes for one in data.trainings if one.minutes is not None]
    if minutes:
        note = f"{len(minutes)} training{'s' if len(minutes) > 1 else ''}, wall time"
        tiles.append({"label": "training", "value": formatting.seconds(60 * sum(minutes)), "note": note})
    for arm in dict.fromkeys(one.arm for one in data.trainings):
        known = [found for one in data.trainings if one.arm == arm and (found := ends(one.values("rl", "reward")))]
        if known:
            first, last = (sum(one[place] for one in known) / len(known) for place in (0, 1))
            note = f"reward of the last tenth; first tenth {first:.2f}" + (f"; {len(known)} seeds" if known[1:] else "")
            tiles.append({"label": arm, "value": f"{last:.2f}", "note": note})
    scored = sum(sum(one.values("rl", "scored")) for one in data.trainings)
    seconds = sum(seconds_of(one).get("step", 0.0) for one in data.trainings)
    if scored and seconds:
        note = f"{formatting.number(scored)} answers scored in {formatting.seconds(seconds)}"
        tiles.append(
            {"label": "rewards an hour", "value": formatting.number(round(3600 * scored / seconds)), "note": note}
        )
    return tiles


# ---------------------------------------------------------------- curves


def _curves(data: TrainingFolder, palette: Mapping[str, int]) -> list[tuple[str, list[train_plots.Chart]]]:
    """Returns (heading, charts) for each heading with a chart."""

    def one(stage: str, metric: str, title: str) -> train_plots.Chart | None:
        lines, title = train_plots.series(data.trainings, stage, metric, palette), labelled(title, metric, data.clock)
        if metric in BAD_SHARES and not any(value for line in lines for _, value in line.points):
            return None  # all zero: the table of rates shows that
        share = metric in GOOD_SHARES | BAD_SHARES
        holds = [0.0, 1.0] if metric in GOOD_SHARES else [0.0] if share else []
        return train_plots.chart(title, lines, share=share, holds=holds, log=metric == "loss" and stage != "rl")

    groups = [
        ("Fine-tuning", [one(*curve) for curve in SFT_CURVES]),
        ("Held-out tasks while training", [one("eval", *curve) for curve in HELD_CURVES]),
        ("Reinforcement learning", [one("rl", *curve) for curve in RL_CURVES]),
    ]
    return [(title, drawn) for title, all_ in groups if (drawn := [chart for chart in all_ if chart])]


# ---------------------------------------------------------------- evaluation


def _dots(data: TrainingFolder, palette: Mapping[str, int]) -> list[train_plots.Dots]:
    best, names = pooled(data.evaluation.get("arms") or []), {"roofline": "Share of the roofline"}
    found = []
    for metric in PLOTTED:
        title = labelled(names.get(metric, metric if "_" in metric else metric.capitalize()), metric, data.clock)
        found.append(train_plots.dots(title, best, metric, palette, share=metric != "reward"))
    return [one for one in found if one]


# ---------------------------------------------------------------- time, examples, settings


def _time(training: TrainingLog) -> dict[str, Any]:
    """The time of one training's steps by phase; empty if not logged."""
    spent = seconds_of(training)
    whole = spent.get("step", 0.0)
    if not whole:
        return {}
    parts = {name: spent[name] for name in (*PHASES, *spent) if name in spent and name != "step"}
    parts["other"] = max(0.0, whole - sum(parts.values()))
    shares = [(name, seconds, seconds / whole) for name, seconds in parts.items() if seconds > 0.005 * whole]
    busy = mean(training.values("rl", "gpu_busy"))
    hours = mean(training.values("rl", "rewards_an_hour"))
    return {"name": training.name, "seconds": whole, "parts": shares, "busy": busy, "an_hour": hours}


def _hole(found: Mapping[str, Any]) -> dict[str, Any]:
    """The shares of programs that exploit a planted hole, during and after training; empty without one."""
    along, after = found.get("along") or {}, found.get("after") or {}
    if not along:
        return {}
    words = {"hole": ("with the hole", 5), "closed": ("with the real verifier", 4)}
    lines = []
    for name, shares in along.items():
        points = [(round(100 * (place + 1) / len(shares)), share) for place, share in enumerate(shares)]
        label, colour = words.get(name, (str(name), 1))
        lines.append(train_plots.Series(label, colour, points))
    chart = train_plots.chart("Programs that cheat, over the judged ones in %", lines, share=True, holds=[0.0])
    columns = list(dict.fromkeys(column for shares in after.values() for column in shares))
    rows = [(words.get(name, (name, 0))[0], [shares.get(one) for one in columns]) for name, shares in after.items()]
    return {"lines": lines, "chart": chart, "columns": columns, "rows": rows}


def _examples(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "problem": str(one.get("problem", "")),
            "split": str(one.get("split") or ""),
            "source": html.highlight(str(one.get("source", "")), "python"),
            "arms": [
                (arm, _answer(sample.get("completion", "")), _outcome(sample.get("outcome")), None)
                for arm, sample in (one.get("arms") or {}).items()
            ],
        }
        for one in found
    ]


def _samples(training: TrainingLog) -> dict[str, Any]:
    """The first, middle and last answers of one training; empty if none were kept."""
    kept = [one for one in training.samples if isinstance(one.get("completion"), str)]
    if not kept:
        return {}
    places = sorted({(len(kept) - 1) * n // max(SHOWN_SAMPLES - 1, 1) for n in range(SHOWN_SAMPLES)})
    shown = [kept[place] for place in places]
    return {
        "name": training.name,
        "answers": [
            (
                f"step {one['step']}, {one.get('problem', '')}",
                _answer(one["completion"]),
                _outcome(one.get("outcome")),
                one.get("reward"),
            )
            for one in shown
        ],
    }


def _answer(text: Any) -> Markup:
    """A completion as HTML: programs highlighted, other text plain."""
    shown = str(text)
    if re.search(r"^\s*HIP = |__global__", shown, re.MULTILINE):
        return html.highlight(shown, "program")
    return Markup('<pre class="log">{}</pre>').format(html.visible(shown) or "(nothing)")


def _outcome(found: Any) -> dict[str, str]:
    """An outcome as a badge and a line of text."""
    if not isinstance(found, dict):
        return {"tone": "unsure", "badge": "not judged", "text": ""}
    fault, status = found.get("fault"), str(found.get("status", ""))
    if fault not in (None, "candidate"):
        return {"tone": "unsure", "badge": f"{status} ({fault} at fault)", "text": str(found.get("message", ""))}
    parts = []
    if found.get("speedup") is not None:
        unit = " ESTIMATE" if found.get("clock") == "estimate" else ""
        parts.append(f"{float(found['speedup']):.2f}× against {found.get('baseline') or 'the baseline'}{unit}")
    parts += [str(found["message"])] if found.get("message") and status != "pass" else []
    return {"tone": formatting.tone(status), "badge": status, "text": "; ".join(parts)[:300]}


def _flat(run: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Flattens settings to (dotted name, value)."""
    found: list[tuple[str, str]] = []
    for name, value in run.items():
        if isinstance(value, dict):
            found += _flat(value, f"{before}{name}.")
        elif f"{before}{name}" != "command":
            found.append((f"{before}{name}", value if isinstance(value, str) else json.dumps(value)))
    return found
