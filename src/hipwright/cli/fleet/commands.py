"""`hipwright fleet up|status|drain`: the nodes of a fleet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.cli.options import Json
from hipwright.cli.output import CommandOutput
from hipwright.cli.shell.command import HelpfulCommand, WholeSummaries

if TYPE_CHECKING:
    from hipwright.fleet.nodes import FleetNode

app = typer.Typer(help="Many GPUs of many machines as one fleet.", cls=WholeSummaries, rich_markup_mode=None)
VARIABLE = "HIPWRIGHT_FLEET"
Address = Annotated[
    str, typer.Option("--address", help=f"The fleet's head, HOST:PORT. [default: ${VARIABLE}]", metavar="A")
]


@app.command("up", cls=HelpfulCommand)
def up(
    address: Annotated[
        str, typer.Option("--address", help="Join the fleet with this head. Without it: be the head.", metavar="A")
    ] = "",
    host: Annotated[str, typer.Option(help="This node's address, as the others see it.", metavar="HOST")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The head's port.", metavar="N")] = 6379,
    name: Annotated[str, typer.Option(help="The node's name. [default: the machine's]", metavar="NAME")] = "",
    cpu_seats: Annotated[
        int | None,
        typer.Option(min=0, help="Evaluations at a time on the cpu target. [default: cores / 2 without a GPU]"),
    ] = None,
    block: Annotated[
        bool, typer.Option("--block", help="Stay in the foreground until the node ends, as Slurm and containers need.")
    ] = False,
    json_mode: Json = False,
) -> int:
    """Start this machine as a node of a fleet: its GPUs and processors become seats."""
    from hipwright.fleet import cluster

    output = CommandOutput(json_mode=json_mode)
    node = cluster.NodeStart(address, host, port, name, cpu_seats)

    def say(at: str) -> None:
        if json_mode:
            output.result({"address": at})
        else:
            output.console().print(at)
            output.say(
                f"commands use it with --fleet {at}; " + ("Ctrl-C" if block else "`ray stop`") + " ends this node"
            )

    if block:
        cluster.up(node, block=say)
    else:
        say(cluster.up(node))
    return 0


@app.command("status", cls=HelpfulCommand)
def status(address: Address = "", json_mode: Json = False) -> int:
    """List the nodes of a fleet: seats by architecture, free ones, drained nodes, fenced devices."""
    from hipwright.fleet.client import ask

    output = CommandOutput(json_mode=json_mode)
    nodes, fences = ask(_address(address), {"type": "look"})
    if json_mode:
        output.result({"nodes": [vars(node) for node in nodes], "fenced": fences})
        return 0
    _print(output, nodes)
    for fence in fences:
        output.say(f"fenced: {fence['seat']}: {fence['why']}")
    return 0


@app.command("drain", cls=HelpfulCommand)
def drain(
    node: Annotated[str, typer.Argument(help="The node's name, or the start of its id.", metavar="NODE")],
    address: Address = "",
    undo: Annotated[bool, typer.Option("--undo", help="Let it get orders again.")] = False,
    wait_s: Annotated[float, typer.Option(min=0, help="How long its running orders may take.", metavar="S")] = 600.0,
    json_mode: Json = False,
) -> int:
    """Give a node no more orders, and wait until those that it has are over."""
    from hipwright.fleet import cluster

    output = CommandOutput(json_mode=json_mode)
    found = cluster.drain(_address(address), node, undo=undo, wait_s=wait_s, listener=output.stages())
    if json_mode:
        output.result({"node": found.name, "id": found.id, "drained": not undo})
    else:
        what = "gets orders again" if undo else "holds no order and gets none: it can be switched off"
        output.console().print(f"{found.name} {what}")
    return 0


def _address(given: str) -> str:
    """The address of the option or the environment. Raises BadInput without one."""
    from hipwright.errors import BadInput

    found = given or os.environ.get(VARIABLE, "")
    if not found:
        raise BadInput("which fleet?", hint=f"--address HOST:PORT, or set {VARIABLE}")
    host, _, port = found.rpartition(":")
    if not host or not port.isdigit():
        raise BadInput(f"{found!r} is no address of a fleet", hint="an address is HOST:PORT, such as 127.0.0.1:6379")
    return found


def _print(output: CommandOutput, nodes: Sequence[FleetNode]) -> None:
    from hipwright.cli.display.fitted import plain_table

    rows: list[list[Any]] = []
    for node in nodes:
        seats = ", ".join(f"{node.free.get(key, 0)} of {count} {key}" for key, count in sorted(node.seats.items()))
        rows.append([node.name, node.device or "-", seats or "none", "drained" if node.drained else "up"])
    output.console().print(plain_table(["node", "device", "free seats", "state"], rows))
