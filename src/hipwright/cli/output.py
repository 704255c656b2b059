"""What a command prints: results to stdout, everything else to stderr, hostile text made harmless.

`Face` is one command's pair of streams. With `json` on, stdout carries exactly one JSON object.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from hipwright.errors import HipwrightError

WHOSE = {
    "candidate": "program",
    "task": "task",
    "toolchain": "toolchain",
    "device": "device",
    "provider": "provider",
    "service": "hipwright",
}
"""How an error line names each fault."""


def clean(text: object, *, keep_lines: bool = False) -> str:
    """`text` with control characters, escape codes and invisible formatting made visible.

    Names and messages come from task files and programs: none may move the cursor or reorder a line.
    """
    keep = "\n\t" if keep_lines else ""
    return "".join(char if char in keep or _harmless(char) else _visible(char) for char in str(text))


def _harmless(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def _visible(char: str) -> str:
    if char in "\n\r\t":
        return " "
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


class Face:
    """The streams of one command: `result` to stdout, `say` and `console` to stderr."""

    def __init__(self, *, json_mode: bool = False) -> None:
        self.json_mode = json_mode

    def say(self, message: str) -> None:
        """One line of progress on stderr."""
        print(clean(message), file=sys.stderr, flush=True)

    def result(self, value: dict[str, Any]) -> None:
        """The one JSON object of a `--json` command."""
        print_json(value)

    def tables(self) -> Console:
        """A rich console on stdout, for people."""
        return console(sys.stdout)


def console(stream: Any) -> Console:
    """A rich console that wraps at the terminal's width, and at 160 columns where there is none."""
    from rich.console import Console

    width = None if stream.isatty() else 160
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def print_json(value: dict[str, Any]) -> None:
    """Write one JSON object and nothing else to stdout; NaN and infinities become null, as JSON has none."""
    print(json.dumps(finite(value), indent=2, allow_nan=False), flush=True)


def finite(value: Any) -> Any:
    """The same plain value with every NaN and infinity replaced by None."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def whose(error: HipwrightError) -> str:
    """Whose fault an error is, in the word an error line starts with."""
    from hipwright.errors import BadInput

    return "bad input" if isinstance(error, BadInput) else WHOSE[error.fault]


def print_error(owner: str, message: str, hint: str = "") -> None:
    """`error: <whose fault>: <message>` on one stderr line, and a hint below it when there is one."""
    lines = [line for line in str(message).splitlines() if line.strip()] or [""]
    print(f"error: {owner}: {clean(lines[0])}", file=sys.stderr)
    for line in lines[1:6]:
        print(f"  {clean(line)}", file=sys.stderr)
    if hint:
        print(f"hint: {clean(hint)}", file=sys.stderr)
    sys.stderr.flush()


def error_object(error: HipwrightError) -> dict[str, Any]:
    """What `--json` prints for an error: the result's own keys, and the message and hint."""
    return {
        "status": error.status,
        "fault": error.fault,
        "stage": error.stage,
        "error": error.message,
        "hint": error.hint,
        "evidence": error.evidence,
        "exit_code": error.exit_code,
    }
