"""Notes that all runs of a fleet share: drained nodes and fenced devices, in the key-value store of Ray's head.

They last as long as the head does. A node that is started anew has a new id and so no note.
"""

from __future__ import annotations

import json
from typing import Any

_SPACE = b"hipwright"


def note(kind: str, name: str, data: dict[str, Any]) -> None:
    """Writes a note. kind: "drain" (name: a node's id) or "fence" (name: node id and device)."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(f"{kind}:{name}".encode(), json.dumps(data).encode(), overwrite=True, namespace=_SPACE)


def remove(kind: str, name: str) -> None:
    """Removes a note, if it is there."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_del(f"{kind}:{name}".encode(), namespace=_SPACE)


def notes(kind: str) -> dict[str, dict[str, Any]]:
    """All notes of a kind, by name."""
    from ray.experimental import internal_kv

    found: dict[str, dict[str, Any]] = {}
    for key in internal_kv._internal_kv_list(f"{kind}:".encode(), namespace=_SPACE):
        value = internal_kv._internal_kv_get(key, namespace=_SPACE)
        if value is not None:
            found[key.decode().partition(":")[2]] = json.loads(value)
    return found
