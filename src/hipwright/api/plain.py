"""Safe output: JSON without NaN, text without control characters, errors as objects."""

from __future__ import annotations

import unicodedata
from typing import Any

from hipwright.errors import BadInput, HipwrightError

OWNERS = {
    "candidate": "program",
    "task": "task",
    "toolchain": "toolchain",
    "device": "device",
    "provider": "provider",
    "service": "hipwright",
}
"""The name of each fault in an error line."""


def clean(text: object, *, keep_lines: bool = False) -> str:
    """`text` with control characters, escape codes and invisible formatting made visible.

    Names and messages come from task files and programs; they must not move the cursor or reorder a line.
    """
    keep = "\n\t" if keep_lines else ""
    return "".join(char if char in keep or _harmless(char) else _visible(char) for char in str(text))


def _harmless(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def _visible(char: str) -> str:
    if char in "\n\r\t":
        return " "
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def finite(value: Any) -> Any:
    """The same plain value with every NaN and infinity replaced by None, as JSON has none."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def error_owner(error: HipwrightError) -> str:
    """Whose fault an error is, as an error line begins with it."""
    return "bad input" if isinstance(error, BadInput) else OWNERS[error.fault]


def error_object(error: HipwrightError) -> dict[str, Any]:
    """An error with the keys of a result, its message and its hint, as `--json` prints it."""
    return {
        "status": error.status,
        "fault": error.fault,
        "stage": error.stage,
        "error": error.message,
        "hint": error.hint,
        "evidence": error.evidence,
        "exit_code": error.exit_code,
    }
