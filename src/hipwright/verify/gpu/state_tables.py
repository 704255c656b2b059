"""State tables that stay on a worker's device between candidates. Imports torch."""

from __future__ import annotations

from hipwright.digest import digests
from hipwright.tensors import Tree
from hipwright.verify.worker.trees import on_device, tensors_of

STATE_SEED = 0x5EED
STATES = 4  # state tables that stay on the device


class StateTables:
    """The latest tables by the parent's keys, each with digests, as a candidate may have written to one."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._tables: dict[str, Tree] = {}

    def get(self, key: str, table: Tree) -> Tree | None:
        """The table of that key on the device, if it is there and unchanged."""
        if table is not None:
            while len(self._tables) >= STATES:
                self._tables.pop(next(iter(self._tables)))
            held = {**table, **on_device({k: table[k] for k in ("params", "buffers")}, self._device)}
            self._tables[key] = held
            held["digests"] = _digests(held)
            return {k: v for k, v in held.items() if k != "digests"}  # nothing could write to it in between
        known = self._tables.get(key)
        if known is not None and known["digests"] != _digests(known):
            known = self._tables.pop(key) and None
        return {k: v for k, v in known.items() if k != "digests"} if known is not None else None


def _digests(table: Tree) -> list[int]:
    """The digest of every parameter and buffer."""
    return digests(list(tensors_of([table["params"], table["buffers"]])), STATE_SEED)
