"""A fleet's nodes: `up` starts Ray on this machine, `drain` empties a node. All by processes of their own."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hipwright.device import topology
from hipwright.device.gpu_info import GpuInfo
from hipwright.errors import BadInput, InfrastructureError
from hipwright.events import Listener
from hipwright.fleet.client import TOKEN_FILE, ask, fleet_of, require_ray, token_known
from hipwright.fleet.nodes import NAME_LABEL, FleetNode, device_label, node_offer

PORT = 6379
STORE_BYTES = 200 << 20  # results are rows of a few kilobytes: the object store holds no tensors
START_S = 120.0
_RAY = "import sys; from ray.scripts.scripts import main; main()"


@dataclass(frozen=True)
class NodeStart:
    """How a node starts. address: of the head that it joins, "" to be the head at host:port. name: in the fleet.

    cpu_seats: evaluations at a time on the cpu target; None for half the processors where there is no GPU, else 0.
    """

    address: str = ""
    host: str = "127.0.0.1"
    port: int = PORT
    name: str = ""
    cpu_seats: int | None = None

    def check(self) -> None:
        """Raises BadInput for an address that is none, and for a node that would join without the head's token."""
        if self.address:
            _check_address(self.address)
            if os.environ.get("RAY_AUTH_MODE", "token") == "token" and not token_known():
                raise BadInput(
                    "this node has no token of the fleet",
                    hint=f"copy {TOKEN_FILE} from the head, readable for you alone",
                )


def make_token() -> None:
    """Writes a token where Ray looks for it, readable for this user alone, unless there is one."""
    if token_known():
        return
    path = TOKEN_FILE.expanduser()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(secrets.token_hex(32))


def up(start: NodeStart, gpus: Sequence[GpuInfo] | None = None, *, block: Callable[[str], None] | None = None) -> str:
    """Starts a node and returns the fleet's address. gpus: None for those that the environment allows.

    block: called with the address; the node then runs in the foreground until it ends or is interrupted, for Slurm,
    systemd and containers, which end what a finished command leaves behind. Ray listens on all interfaces and runs what
    it is sent, so the fleet has a token (RAY_AUTH_MODE=token), which the head makes, unless the user says
    RAY_AUTH_MODE=disabled. Raises BadInput and InfrastructureError.
    """
    require_ray()
    start.check()
    if not start.address:
        make_token()
    command = start_command(start, topology.find() if gpus is None else list(gpus))
    environment = {"RAY_AUTH_MODE": "token"} | dict(os.environ) | {"RAY_USAGE_STATS_ENABLED": "0"}
    address = start.address or f"{start.host}:{start.port}"
    if block is not None:
        block(address)
        _run_in_foreground([*command, "--block"], environment)
        return address
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=START_S)
    except subprocess.TimeoutExpired:
        raise InfrastructureError(
            f"Ray did not start in {START_S:.0f} s", hint="see /tmp/ray/session_latest/logs"
        ) from None
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise InfrastructureError(f"Ray did not start: {lines[-1] if lines else done.returncode}")
    return address


def _run_in_foreground(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Waits for a node's processes. An interrupt ends them. Raises InfrastructureError where they end by themselves."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.terminate()
        raise
    raise InfrastructureError(f"the node has ended (Ray's exit code {code})", hint="see /tmp/ray/session_latest/logs")


def start_command(start: NodeStart, gpus: Sequence[GpuInfo]) -> list[str]:
    """The `ray start` of a node."""
    cores = len(os.sched_getaffinity(0))
    seats = (0 if gpus else max(1, cores // 2)) if start.cpu_seats is None else start.cpu_seats
    resources, labels = node_offer(gpus, seats)
    labels[NAME_LABEL] = device_label(start.name or socket.gethostname())
    where = [f"--address={start.address}"] if start.address else ["--head", f"--port={start.port}"]
    return [
        *(sys.executable, "-c", _RAY, "start", *where),
        f"--node-ip-address={start.host}",
        f"--num-cpus={cores}",
        f"--num-gpus={len(gpus)}",
        f"--resources={json.dumps(resources)}",
        "--labels=" + ",".join(f"{key}={value}" for key, value in labels.items()),
        f"--object-store-memory={STORE_BYTES}",
        "--include-dashboard=false",
        "--disable-usage-stats",
    ]


def drain(address: str, name: str, *, undo: bool, wait_s: float, listener: Listener) -> FleetNode:
    """Lets a node get no new orders, waits until no run holds a seat of it, and returns the node.

    undo: lets it get orders again. Raises BadInput for an unknown name, InfrastructureError when the time is over.
    """
    node = _node(fleet_of(address), name)
    request = {"type": "remove" if undo else "note", "kind": "drain", "name": node.id, "data": {"name": node.name}}
    nodes, _ = ask(address, request)
    end = time.monotonic() + wait_s
    while True:
        node = next((one for one in nodes if one.id == node.id), node)
        busy = sum(node.seats[key] - node.free.get(key, 0) for key in node.seats)
        if undo or not busy:
            return node
        if time.monotonic() >= end:
            raise InfrastructureError(
                f"{node.name} still holds {busy} seats of runs", hint="it gets no new orders; --wait-s gives more time"
            )
        listener("note", {"text": f"{node.name}: {busy} seats still hold an order"})
        time.sleep(min(2.0, max(0.0, end - time.monotonic())))
        nodes = fleet_of(address)


def _node(nodes: Sequence[FleetNode], name: str) -> FleetNode:
    found = [node for node in nodes if node.name == name] or [node for node in nodes if node.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(node.name for node in nodes) or "none"
    raise BadInput(f"{len(found) or 'no'} nodes of the fleet are called {name!r}", hint=f"there are: {known}")


def _check_address(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
        raise BadInput(f"not an address of a fleet: {address!r}", hint="HOST:PORT, as `hipwright fleet up` says it")
