"""Checks of replies from a process that ran hostile code: every field is validated before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from msgspec.structs import replace

from hipwright.errors import WorkerError
from hipwright.records import Status, Verdict
from hipwright.tensors import HostTensor, leaves

# statuses that a candidate's own process may report; only the parent decides "pass"
FAILURES: frozenset[Status] = frozenset(
    ["parse_error", "launch_error", "timeout", "out_of_bounds", "bad_output_spec", "nondeterministic", "input_mutated"]
)
COUNTS = ("read_bytes", "write_bytes", "lds_bytes_moved", "barriers", "wave_ops", "atomics", "float_atomics")
_NAME = 1000  # characters of a kernel's, leaf's or operator's name
_MOST = 2**62


class Malformed(Exception):
    """A reply that the worker's code never sends."""


def check_run(info: Any, tree: Any, *, counted: bool) -> None:
    """Raises Malformed unless this is what the worker's `run` returns. counted: whether kernels ran."""
    reply = _dict(info, "info")
    for entry in _list(reply.get("stats"), "stats"):
        stat = _dict(entry, "an entry of stats")
        _name(stat.get("kernel"), "a kernel's name")
        for key in ("grid", "block"):
            _geometry(stat.get(key), key)
        for key in (*COUNTS, "argument_bytes") if counted else ("argument_bytes",):
            _number(stat.get(key), key)
    for pair in _list(reply.get("aliases"), "aliases"):
        if len(_list(pair, "an alias")) != 2:
            raise Malformed("an alias is not a pair")
        for side in pair:
            _name(side, "an alias")
    for key in ("inputs_changed", "params_changed"):
        for index in _list(reply.get(key), key):
            _size(index, key)
    _name(reply.get("generator", ""), "a generator's state")
    if set(_dict(tree, "the result")) != {"outputs", "buffers"}:
        raise Malformed("the result is not outputs and buffers")


def check_many(reply: Any, trees: Any, most: int) -> None:
    """Raises Malformed unless this has the outer form of what a GPU worker's `run_many` returns for `most` runs.

    Entries of finished runs are for `check_run`. A list that ends early ends with a verdict.
    """
    runs = _list(_dict(reply, "info").get("runs"), "runs")
    if len(runs) != len(_list(trees, "the results")) or not 1 <= len(runs) <= most:
        raise Malformed("not an entry for each run")
    for index, item in enumerate(runs):
        entry = _dict(item, "a run")
        if "guard" in entry:
            if not isinstance(entry["guard"], str) or _clean(entry["guard"]) != entry["guard"]:
                raise Malformed("a guard is no text")
            _size(entry.get("line"), "line")
        elif "verdict" in entry:
            _dict(entry["verdict"], "a verdict")
        elif index == len(runs) - 1 < most - 1:
            raise Malformed("runs are missing")


def check_result(reply: Any, specs: Any) -> None:
    """Raises Malformed unless this is what `run_set` returns: `check_run`'s info, a handle, and specs for tensors."""
    check_run(reply, specs, counted=False)
    _size(reply.get("handle"), "handle")
    for leaf in leaves(specs):
        if isinstance(leaf, HostTensor):
            raise Malformed("a tensor where its spec belongs")


def numbers(reply: Any, key: str) -> tuple[float, ...]:
    """A non-negative number, or a list of them, of a reply about time. Raises WorkerError for anything else."""
    return tuple(float(value) for value in _checked(reply, key, _number))


def whole_numbers(reply: Any, key: str) -> tuple[int, ...]:
    """A non-negative integer, or a list of them, of a reply. Raises WorkerError for anything else."""
    return tuple(_checked(reply, key, _size))


def _checked(reply: Any, key: str, check: Callable[[Any, str], None]) -> list[Any]:
    try:
        value = _dict(reply, "the reply").get(key)
        values = value if isinstance(value, list) else [value]
        for item in values:
            check(item, key)
    except Malformed as error:
        raise WorkerError(f"the worker's reply is malformed: {error}") from error
    return values


def checked_trace(header: Any) -> dict[str, Any]:
    """The reply to `trace`.

    Raises WorkerError unless it has operators and launches as program/lower/trace.py makes them.
    """
    try:
        reply = _dict(header, "the trace")
        _each(reply.get("ops"), "ops", _operator)
        _size(reply.get("live", 0), "live")
        for item in _list(reply.get("calls"), "calls"):
            call = _dict(item, "a call")
            _name(call.get("name"), "a call's name")
            _each(call.get("ops"), "a call's ops", _operator)
        for item in _list(reply.get("launches"), "launches"):
            launch = _dict(item, "a launch")
            _name(launch.get("kernel"), "a kernel's name")
            for key in ("grid", "block"):
                _geometry(launch.get(key), key)
            _size(launch.get("lds"), "lds")
            _each(launch.get("args"), "args", lambda arg: _spec(arg) if isinstance(arg, dict) else None)
    except Malformed as error:
        raise WorkerError(f"the worker's trace is malformed: {error}") from error
    return reply


def accepted_report(verdict: Verdict) -> Verdict:
    """A verdict that the worker reported, if it may report one; else the verdict on a forged reply."""
    if verdict.status in FAILURES and verdict.fault == "candidate":
        return replace(verdict, message=_clean(verdict.message), evidence=_clean(verdict.evidence))
    return forged_reply(
        f"the candidate's process reports itself as {verdict.status}: {verdict.message}", verdict.evidence
    )


def forged_reply(message: str, evidence: Mapping[str, Any] | None = None) -> Verdict:
    """The verdict on a program whose process sends what the worker's code never sends."""
    return Verdict(
        status="hack", fault="candidate", stage="verify", message=_clean(message), evidence=_clean(dict(evidence or {}))
    )


def _clean(value: Any, depth: int = 8) -> Any:
    """The value in the form of a record: no lone surrogates, no integers beyond 64 bits, no deep nesting."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, int):
        return value if abs(value) < _MOST else str(value)[:_NAME]
    if isinstance(value, (dict, list, tuple)) and not depth:
        return "..."
    if isinstance(value, dict):
        return {_clean(str(key)): _clean(item, depth - 1) for key, item in value.items()}
    return [_clean(item, depth - 1) for item in value] if isinstance(value, (list, tuple)) else value


def _dict(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{what} is a {type(value).__name__}")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise Malformed(f"{what} is a {type(value).__name__}")
    return value


def _each(value: Any, what: str, check: Callable[[Any], None]) -> None:
    for item in _list(value, what):
        check(item)


def _name(value: Any, what: str) -> None:
    if not isinstance(value, str) or len(value) > _NAME or _clean(value) != value:
        raise Malformed(f"{what} is no name")


def _number(value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (isfinite(value) and 0 <= value < _MOST):
        raise Malformed(f"{what} is no count")


def _size(value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST:
        raise Malformed(f"{what} is no size")


def _geometry(value: Any, what: str) -> None:
    if len(_list(value, what)) != 3:
        raise Malformed(f"{what} has not three sizes")
    _each(value, what, lambda size: _size(size, what))


def _operator(value: Any) -> None:
    op = _dict(value, "an operator")
    _name(op.get("op"), "an operator's name")
    for key in ("in", "out"):
        _each(op.get(key), key, _spec)


def _spec(value: Any) -> None:
    spec = _dict(value, "a tensor's spec")
    _name(spec.get("dtype"), "a dtype")
    _each(spec.get("shape"), "shape", lambda size: _size(size, "shape"))
    _each(spec.get("stride"), "stride", lambda stride: _size(stride, "stride"))
    if len(spec["shape"]) != len(spec["stride"]):
        raise Malformed("a spec has not a stride for each size")
