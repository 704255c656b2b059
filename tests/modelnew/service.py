"""A session that runs a ModelNew file as a worker does: confined first, then loaded."""

from __future__ import annotations

from typing import Any

from hipwright.program.lower.table import to_device
from hipwright.program.modelnew.run import load
from hipwright.sandbox import lockdown
from hipwright.torchio import tree_from_torch


class Runner:
    """init: what program.modelnew.run.load wants; bundle: the state table with init_inputs."""

    def __init__(self, init: dict[str, Any], table: Any) -> None:
        lockdown("candidate")
        self._live = load(init, table, "cpu")

    def run(self, header: dict[str, Any], inputs: Any) -> Any:
        """One call; with trace, also the library operators."""
        given = to_device(list(inputs), "cpu")
        ops: list[dict[str, Any]] = []
        if header.get("trace"):
            outputs, ops = self._live.trace(*given)
        else:
            outputs = self._live(*given)
        info = {"ops": [op["op"] for op in ops], "params": list(self._live.params)}
        return info, tree_from_torch(outputs)
