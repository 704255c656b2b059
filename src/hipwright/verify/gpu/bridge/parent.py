"""The parent's part of a bridge: it hands one process's memory to another, and never looks into it.

A worker exports one piece of memory; the hosts of the tasks that it serves map it. Inputs and parameters go that way to
a candidate, and its results to the judge, piece by piece, while no candidate runs. Does not import torch.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hipwright.sandbox import Session
from hipwright.targets import TORCH_GPU

PIECE_BYTES = 128 << 20
"""Of memory of one bridge."""
LEAST_BYTES = 4 << 20
"""Less than this is sent in chunks: mapping takes longer."""

_numbers = itertools.count(1)


class BridgedHost(Protocol):
    """A process that maps a worker's memory: the host of a `DeviceReference`."""

    generation: int

    def map_bridge(self, number: int, nbytes: int, fd: int) -> bool:
        """Maps the memory behind a descriptor under a number; False where it cannot be mapped."""
        ...

    def forget_bridge(self, number: int) -> None:
        """Unmaps it with the next bridge that is mapped."""
        ...


@dataclass
class Bridge:
    """The memory of one worker's process. number: names it in every host."""

    session: Session
    bytes: int = PIECE_BYTES
    number: int = field(default_factory=lambda: next(_numbers))
    _fd: int = -1
    _mapped: dict[int, tuple[BridgedHost, int, bool]] = field(default_factory=dict)

    @classmethod
    def opened(cls, session: Session, device: str, call: Callable[..., Any]) -> Bridge:
        """A bridge of a worker; one that reaches no host where the worker cannot export memory.

        call: of the worker, with `Session.call_json`'s give and take.
        """
        made = cls(session)
        given, taken = None, list[int]()
        if not device.startswith(TORCH_GPU):
            given = os.memfd_create("bridge", os.MFD_CLOEXEC)
            os.ftruncate(given, made.bytes)
        try:
            reply = call("bridge_open", {"bytes": made.bytes}, give=given, take=taken)
        except BaseException:
            for fd in (*taken, *([] if given is None else [given])):
                os.close(fd)
            raise
        fds = [given] if given is not None else taken
        if fds and reply.get("opened") is True:
            made._fd = fds.pop()
        for fd in fds:
            os.close(fd)
        return made

    def reaches(self, host: BridgedHost) -> bool:
        """Whether a host has mapped it, or maps it now."""
        if self._fd < 0:
            return False
        known = self._mapped.get(id(host))
        if known is None or known[1] != host.generation:
            found = host.map_bridge(self.number, self.bytes, self._fd)
            known = self._mapped[id(host)] = host, host.generation, found
        return known[2]

    def close(self) -> None:
        """Gives the memory back, once the worker has ended."""
        for host, _, mapped in self._mapped.values():
            if mapped:
                host.forget_bridge(self.number)
        self._mapped.clear()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def pieces(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int, int]]:
    """(leaf, offset, bytes) of pieces that cover every leaf."""
    for leaf, size in enumerate(sizes):
        for offset in range(0, size, most):
            yield leaf, offset, min(most, size - offset)
