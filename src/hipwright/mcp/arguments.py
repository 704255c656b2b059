"""What all tools share: their arguments and their answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec

from hipwright.api.runs.child import ChildCommand

TaskPath = Annotated[str, msgspec.Meta(description="The task file, relative to the server's root folder.")]


class ToolArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool; the JSON schema for clients is made from it."""


@dataclass(frozen=True)
class Reply:
    """A tool's answer. data: plain JSON types."""

    text: str
    data: dict[str, Any]


class SearchContext(Protocol):
    """What tools that search need of the session. keeps: whether its archive may be written."""

    root: Path
    home: Path | str
    targets: tuple[str, ...]
    child: ChildCommand

    @property
    def keeps(self) -> bool:
        """Whether the session's archive may be written."""
