"""Whether anything answers at a model's address, asked before a run: a server that was not started is said at once."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from hipwright.llm.specs import ModelSpec

SECONDS = 3.0
"""How long a connection may take."""


def silent_servers(specs: Iterable[ModelSpec]) -> Iterator[tuple[str, str]]:
    """(address, why) of each server of one's own to which no connection can be made; providers are not tried."""
    seen: set[str] = set()
    for spec in specs:
        if not spec.address or spec.address in seen:
            continue
        seen.add(spec.address)
        why = _unreachable(spec.address)
        if why:
            yield spec.address, why


def _unreachable(address: str) -> str:
    parts = urlsplit(address)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname or "", port), timeout=SECONDS).close()
    except (OSError, ValueError) as error:
        return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
    return ""
