"""The CandidateError of a failed CPU launch: the runtime's record as a message and evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hipwright.device.cpu import abi
from hipwright.device.cpu.arguments import BufferArgument, distinct, launch_error
from hipwright.device.signature import KernelParam
from hipwright.errors import CandidateError

NULL_REACH = 1 << 32
"""Addresses below this come from a null pointer: no buffer is mapped there."""
_PLACES = {abi.LDS: "LDS", abi.STACK: "stack", abi.MODULE: "module variable"}


class FaultyLaunch(Protocol):
    """What the runtimes of the cpu and the simulated targets tell of a launch that failed."""

    status: int
    at: abi.Party
    other: abi.Party
    address: int
    alignment: int
    region: int
    message: bytes
    bytes: int


def failure(
    kernel: str,
    launch: FaultyLaunch,
    buffers: Sequence[BufferArgument],
    params: Sequence[KernelParam],
    nulls: Sequence[str],
) -> CandidateError:
    """The error of a launch whose status is not 0. nulls: pointer parameters that were passed None."""
    status = abi.STATUS[launch.status]
    races = status == "nondeterministic"
    evidence: dict[str, Any] = {"block": list(launch.at.block), "thread": list(launch.at.thread)}
    message = launch.message.decode()
    if launch.status == abi.MISALIGNED:
        given = launch.address & -launch.address
        message = (
            f"misaligned access: {launch.bytes} bytes at an address that is a multiple of {given} only, "
            f"where the source promises {launch.alignment}"
        )
        evidence["alignment"] = {"promised": launch.alignment, "address": given}
    if launch.at.line:
        evidence["line"] = launch.at.line
    if status == "out_of_bounds" or races or launch.address:
        evidence |= {"kind": abi.KINDS[launch.at.access], "address": hex(launch.address)}
        near_null = bool(nulls) and launch.address < NULL_REACH
        evidence |= {"null": list(nulls)} if near_null else _place(launch, buffers, params)
        if launch.bytes:
            evidence["bytes"] = launch.bytes
    if races or launch.other.line:
        evidence["other"] = _party(launch.other, with_access=races)
    return launch_error(kernel, status, f"{message}{_summary(evidence)}", **evidence)


def check_red_zones(kernel: str, buffers: Sequence[BufferArgument], params: Sequence[KernelParam]) -> None:
    """Raises CandidateError(out_of_bounds) after a write beside a buffer."""
    for buffer in buffers:
        stray = buffer.region.stray()
        if stray is not None:
            where = buffer.element(buffer.region.start + stray)
            name = params[buffer.index].name
            raise launch_error(
                kernel,
                "out_of_bounds",
                f"a write outside {name}, near element {where}",
                argument=name,
                argument_index=buffer.index,
                element=where,
                kind="write",
            )


def _place(launch: FaultyLaunch, buffers: Sequence[BufferArgument], params: Sequence[KernelParam]) -> dict[str, Any]:
    """Evidence of the memory that was accessed: an argument's element, or a kind of memory."""
    if launch.region < 0:
        return {"buffer": _PLACES.get(launch.region, "none")}
    region = distinct(buffers)[launch.region].region
    buffer = next(b for b in buffers if b.region.start == region.start)
    return {
        "argument": params[buffer.index].name,
        "argument_index": buffer.index,
        "element": buffer.element(launch.address),
        "elements": list(buffer.tensor.shape),
    }


def _party(party: abi.Party, *, with_access: bool) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if with_access:
        told = {"block": list(party.block), "thread": list(party.thread), "kind": abi.KINDS[party.access]}
    return {**told, **({"line": party.line} if party.line else {})}


def _summary(evidence: Mapping[str, Any]) -> str:
    """The evidence as the end of a message."""
    words = [f"block {tuple(evidence['block'])} thread {tuple(evidence['thread'])}"]
    if "null" in evidence:
        words.append(f"{evidence['kind']} through a null pointer argument ({' or '.join(evidence['null'])})")
    elif "argument" in evidence:
        words.append(f"{evidence['kind']} of {evidence['argument']}[{evidence['element']}]")
    elif "buffer" in evidence:
        words.append(f"{evidence['kind']} of {evidence['buffer']} memory")
    if "line" in evidence:
        words.append(f"line {evidence['line']}")
    if "thread" in (other := evidence.get("other", {})):
        words.append(f"against a {other['kind']} by block {tuple(other['block'])} thread {tuple(other['thread'])}")
    return ": " + ", ".join(words)
