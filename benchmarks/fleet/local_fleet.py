"""A fleet of several nodes on one machine, with processes that can be killed: for tests and the benchmark."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

STORE_BYTES = 100 << 20
PORT_S = 90.0
TOKEN = secrets.token_hex(32)  # one a process, as Ray reads it once
ROOT = Path(__file__).resolve().parents[2]


class LocalFleet:
    """A head without seats, and nodes with those that `add` gives them."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._head = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=self._head)
        self._offers: dict[int, tuple[Any, ...]] = {}  # what a node was added with, by its object's id
        self.nodes: list[Any] = []

    @property
    def address(self) -> str:
        """The head's."""
        return str(self._cluster.address)

    def add(self, name: str, seats: Mapping[str, int], device: str = "", gpus: int = 0) -> Any:
        """A node with a name and seats by architecture. gpus: how many Ray believes that it has."""
        labels = {"hipwright.io/name": name} | ({"hipwright.io/device": device} if device else {})
        node = self._cluster.add_node(
            num_cpus=1, num_gpus=gpus, resources=dict(seats), labels=labels, object_store_memory=STORE_BYTES
        )
        self.nodes.append(node)
        self._offers[id(node)] = (name, seats, device, gpus)
        return node

    def kill_node(self, node: Any) -> None:
        """Kills a node's raylet with SIGKILL: its actors end with it."""
        self.nodes.remove(node)
        for process in node.all_processes["raylet"]:
            _kill(process.process.pid)

    def kill_head(self) -> None:
        """Kills the head's control process (GCS) with SIGKILL."""
        for process in self._cluster.head_node.all_processes["gcs_server"]:
            _kill(process.process.pid)

    def restart(self) -> None:
        """After `kill_head`: starts the head anew at its address, and all nodes, as what keeps `fleet up --block` does.

        The new head remembers nothing. In the main thread alone, as Ray has it.
        """
        offers, port = [self._offers[id(node)] for node in self.nodes], int(self.address.rpartition(":")[2])
        for node in [*self.nodes, self._cluster.head_node]:
            _kill_all(node)
        self.nodes.clear()
        self._cluster = self._head_at(port)
        for offer in offers:
            self.add(*offer)

    def _head_at(self, port: int) -> Any:
        """A head at a port, which the last one's connections may hold for some seconds."""
        from ray.cluster_utils import Cluster

        until = time.monotonic() + PORT_S
        while True:
            try:
                return Cluster(initialize_head=True, head_node_args={**self._head, "gcs_server_port": port})
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(2.0)

    def close(self) -> None:
        """Ends all nodes."""
        with suppress(Exception):
            self._cluster.shutdown()
        for node in [*self.nodes, self._cluster.head_node]:
            _kill_all(node)


@contextmanager
def local_fleet() -> Iterator[LocalFleet]:
    """A fleet of this process's own, with a token, as it listens on all interfaces."""
    before = dict(os.environ)
    os.environ.update(
        RAY_USAGE_STATS_ENABLED="0",
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN=TOKEN,
        PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]),
    )
    fleet = None
    try:
        fleet = LocalFleet()
        yield fleet
    finally:
        if fleet is not None:
            fleet.close()
        os.environ.clear()
        os.environ.update(before)


def _kill_all(node: Any) -> None:
    for processes in getattr(node, "all_processes", {}).values():
        for process in processes:
            _kill(process.process.pid)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
