"""What a notebook shows of a result: verdicts by target, what was not measured, and the program."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from hipwright.records import TargetResult


def notebook_html(title: str, targets: Mapping[str, TargetResult], notes: Sequence[str], source: str) -> str:
    """A few lines of HTML without scripts or styles. title: a sentence; source: the program's text, "" for none."""
    head = "<tr><th>target</th><th>verdict</th><th>time</th></tr>"
    rows = "".join(_row(name, result) for name, result in targets.items())
    listed = "".join(f"<li>{html.escape(line)}</li>" for line in notes)
    code = f"<details><summary>program</summary><pre>{html.escape(source)}</pre></details>" if source else ""
    return f"<p>{html.escape(title)}</p><table>{head}{rows}</table><ul>{listed}</ul>{code}"


def _row(name: str, result: TargetResult) -> str:
    verdict = result.verdict.status if result.verdict else "compiled" if result.build and result.build.ok else "-"
    time = "-"
    if result.timing is not None:
        time = f"{result.timing.median_ms:.4g} ms on {result.timing.device}"
    elif result.estimate is not None:
        time = f"{result.estimate.microseconds:.3g} µs (ESTIMATE)"
    cells = (name, verdict, time)
    return f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"
