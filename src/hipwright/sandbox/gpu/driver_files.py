"""What the sandbox must know of a vendor's driver on a Linux machine."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Protocol


class DriverFiles(Protocol):
    """Where a vendor's driver shows its GPUs, and which folders and variables its libraries read.

    roots: folders outside /usr with libraries and tools. tools: folders for PATH. visible: the variable that says which
    GPUs a process may use. home: (variable, folder) of the toolkit. renumbered: whether a contained process sees its
    GPU as number 0.
    """

    roots: ClassVar[tuple[str, ...]]
    tools: ClassVar[tuple[str, ...]]
    visible: ClassVar[str]
    home: ClassVar[tuple[str, str]]
    renumbered: ClassVar[bool]

    def nodes(self, index: int, dev: Path) -> tuple[list[Path], list[Path]]:
        """(the device nodes of GPU `index`, those that are missing)."""
        ...

    def count(self, dev: Path, sys: Path) -> int:
        """How many GPUs there are."""
        ...
