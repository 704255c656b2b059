"""What a command prints: results to stdout, everything else to stderr, untrusted text made harmless.

`CommandOutput` is one command's pair of streams. With `--json`, stdout carries exactly one JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from hipwright.api.plain import clean, finite
from hipwright.cli.display.verbosity import says_progress
from hipwright.events import doing
from hipwright.stopping import note_answer

if TYPE_CHECKING:
    from rich.console import Console

    from hipwright.events import Listener


class CommandOutput:
    """The streams of one command: `result` and `console` write to stdout, `say` writes to stderr."""

    def __init__(self, *, json_mode: bool = False) -> None:
        self.json_mode = json_mode

    def say(self, message: str) -> None:
        """Prints one line of progress on stderr."""
        print(clean(message), file=sys.stderr, flush=True)

    def result(self, value: dict[str, Any]) -> None:
        """Prints the one JSON object of a `--json` command."""
        print_json(value)

    def console(self) -> Console:
        """A rich console on stdout."""
        return rich_console(sys.stdout)

    def stages(self) -> Listener:
        """A listener that prints stages and notes as lines; with `--json`, notes only."""

        def listener(kind: str, data: dict[str, Any]) -> None:
            if kind == "stage":
                doing(str(data.get("text", "")))
            if kind == "note" or (kind == "stage" and not self.json_mode and says_progress()):
                self.say(str(data.get("text", "")))

        return listener


def rich_console(stream: Any) -> Console:
    """A rich console that wraps at the terminal's width, and at 160 columns where there is none."""
    from rich.console import Console

    width = None if stream.isatty() else 160
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def print_json(value: dict[str, Any]) -> None:
    """Writes one JSON object and nothing else to stdout; NaN and infinities become null, as JSON has none."""
    text = json.dumps(finite(value), indent=2, allow_nan=False)
    note_answer()
    print(text, flush=True)


def print_error(owner: str, message: str, hint: str = "") -> None:
    """Prints `error: <whose fault>: <message>` on stderr, up to five further lines of it, and the hint if any."""
    lines = [line for line in str(message).splitlines() if line.strip()] or [""]
    print(f"error: {owner}: {clean(lines[0])}", file=sys.stderr)
    for line in lines[1:6]:
        print(f"  {clean(line)}", file=sys.stderr)
    if hint:
        print(f"hint: {clean(hint)}", file=sys.stderr)
    sys.stderr.flush()
