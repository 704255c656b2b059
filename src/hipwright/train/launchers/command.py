"""The command line of a launched stage."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class NodeRank:
    """This machine's rank among several, from 0, and the address of the machine with rank 0."""

    rank: int = 0
    address: str = ""


SINGLE_NODE = NodeRank()


@dataclass(frozen=True)
class LaunchCommand:
    """A command line with further environment variables.

    files: texts by name, written to the run's folder first. needs: packages that it requires.
    """

    argv: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def shell(self) -> str:
        """The command as a line of shell."""
        return " ".join([*(f"{name}={value}" for name, value in self.variables.items()), shlex.join(self.argv)])
