"""Zygotes that one process of a command starts and lends to its others, so that what they import is imported once."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hipwright.sandbox.zygote import Zygote

MakeZygote = Callable[..., Zygote]
"""Makes a zygote from the arguments of `Zygote`; the caller closes it."""


class Lender:
    """Makes zygotes as `MakeZygote` and lends those that have begun to start. borrowers: processes that use them.

    Names are unique among the zygotes that one lender makes.
    """

    def __init__(self, borrowers: int) -> None:
        self._borrowers = borrowers
        self._made: dict[str, Zygote] = {}

    def __call__(self, preload: Sequence[str] = ("torch",), /, **options: Any) -> Zygote:
        """The zygote, which the caller closes."""
        made = Zygote(preload, borrowers=self._borrowers, **options)
        assert made.name not in self._made, made.name
        self._made[made.name] = made
        return made

    def lend(self) -> dict[str, socket.socket]:
        """A control socket of each by its name, for one `Borrower`; the caller closes them here."""
        return {name: zygote.lend() for name, zygote in self._made.items() if zygote.begun}


class Borrower:
    """Makes zygotes as `MakeZygote`, of which each that was lent begins as a fork of the lender's.

    loans: file descriptors of `Lender.lend` by names, which this object closes with its zygotes.
    """

    def __init__(self, loans: Mapping[str, int]) -> None:
        self._loans = {name: socket.socket(fileno=number) for name, number in loans.items()}

    def __call__(self, preload: Sequence[str] = ("torch",), /, **options: Any) -> Zygote:
        """The zygote, which the caller closes."""
        made = Zygote(preload, **options)
        if (loan := self._loans.pop(made.name, None)) is not None:
            made.borrow(loan)
        return made
