"""Progress of `hipwright model` on stderr: a line a stage, and of each search its best programs and every few seconds
how far it is."""

from __future__ import annotations

import time
from typing import Any

from hipwright.cli.display.verbosity import says_progress
from hipwright.cli.output import CommandOutput
from hipwright.events import doing

LINE_SECONDS = 5.0


class ModelProgress:
    """A listener for `api.whole.improve.improve_model`; with `--json`, silent."""

    def __init__(self, output: CommandOutput) -> None:
        self._output, self._started, self._said = output, time.monotonic(), 0.0
        self._budgets: dict[int, int] = {}  # of the regions that are searched now, several at a time

    def __call__(self, kind: str, data: dict[str, Any]) -> None:
        """Handles one event; others than those of `improve_model` are ignored."""
        region = data.get("region")
        if kind == "stage":
            doing(str(data.get("text", "")))
            self._line(str(data.get("text", "")), region)
        elif kind == "region":
            paths = data.get("paths") or [""]
            self._budgets[data["number"]] = int(data["budget"])
            self._line(f"{paths[0] or 'the model'}: a search of {data['budget']} evaluations", region)
        elif kind == "region done":
            why = "" if data["kept"] else f": {data['why']}"
            self._line(f"{'found' if data['kept'] else 'left'} after {data['seconds']:.1f} s{why}", region)
        elif kind == "decided" and data.get("best"):
            score = data.get("score")
            shown = "passed" if score is None else f"{score:.2f} µs ({str(data.get('score_kind') or '').upper()})"
            self._line(f"new best #{data.get('number')}: {shown}", region)
        elif kind == "evaluated" and time.monotonic() - self._said >= LINE_SECONDS:
            of = self._budgets.get(region or 0, "?")
            self._line(f"{data.get('evaluations', '?')}/{of} evaluations, {data.get('status', '')}", region)

    def _line(self, text: str, region: int | None = None) -> None:
        self._said = time.monotonic()
        if not self._output.json_mode and says_progress():
            place = f" region {region + 1}" if region is not None else ""
            self._output.say(f"[{self._said - self._started:6.1f}s{place}] {text}")
