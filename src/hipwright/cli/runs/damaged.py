"""Rows of the archive that cannot be read, as queries name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hipwright.cli.output import CommandOutput

if TYPE_CHECKING:
    from hipwright.archive import DamagedRow


def plain_rows(damaged: Sequence[DamagedRow]) -> list[dict[str, Any]]:
    """Damaged rows as plain JSON types."""
    return [row.to_dict() for row in damaged]


def say_damaged(output: CommandOutput, damaged: Sequence[DamagedRow], limit: int = 5) -> None:
    """A line on stderr for each damaged row, `limit` at most."""
    for row in damaged[:limit]:
        output.say(f"skipped, cannot be read: {row.text}")
    if len(damaged) > limit:
        output.say(f"and {len(damaged) - limit} more: hipwright runs --check")
