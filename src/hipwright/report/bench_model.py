"""The figures of a measured model in words: curves over k, and the cost of its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hipwright.report import formatting

Curve = Mapping[str, Mapping[str, Any]]  # {k: an estimate}


def curves(model: Mapping[str, Any]) -> dict[str, Curve]:
    """{name: curve over k}: pass@k, compiled@k, and fast_1@k against each baseline."""
    found: dict[str, Curve] = {"pass@k": model["pass_at"], "compiled@k": model["compiled_at"]}
    for baseline, levels in (model["fast_at"] or {}).items():
        found[f"fast_1@k against {baseline}"] = levels["1"]
    return found


def describe_share(one: Mapping[str, Any]) -> str:
    """A share with its interval, such as "40 % (11-72) of 5 tasks"."""
    if one["value"] is None:
        return "no task has so many samples"
    low, high = one["interval"]
    out = f", {one['left_out']} left out" if one["left_out"] else ""
    return f"{formatting.percent(one['value'])} ({100 * low:.0f}-{100 * high:.0f}) of {one['tasks']} tasks{out}"


def cost_lines(model: Mapping[str, Any]) -> list[str]:
    """The spending in all, and per solved task."""
    cost, solved = model["cost"], model["solved"]
    tokens = f"{cost['input_tokens']} tokens in, {cost['output_tokens']} out"
    lost = f", {cost['lost_calls']} of them lost and counted at what they may have cost" if cost["lost_calls"] else ""
    lines = [f"solved {solved['count']} of {solved['total']} tasks with {cost['calls']} calls{lost}: {tokens}"]
    if cost["unpriced"]:
        lines.append(f"no price is known for {', '.join(cost['unpriced'])}: --price MODEL=IN,OUT gives one")
    else:
        lines.append(f"${cost['usd']:.4f} in all")
    each = [f"${cost['usd_per_solved']:.4f}"] if cost["usd_per_solved"] is not None else []
    each += [f"{cost['tokens_per_solved']:.0f} tokens"] if cost["tokens_per_solved"] is not None else []
    lines.append(f"{', '.join(each)} for each solved task" if each else "no task was solved, so a kernel has no price")
    return lines
