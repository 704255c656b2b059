"""A graph for its captured sizes only: what is written where a size that may change cannot be handled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Symbol


def specialise(graph: Graph) -> Graph:
    """The same graph for the captured sizes only, guarded."""
    hints = {s.name: s.hint for s in graph.symbols}

    def fixed(value: Any) -> Any:
        if isinstance(value, str):
            return _evaluated(value, hints)
        if isinstance(value, dict):
            return _evaluated(value["size"], hints) if "size" in value else value
        return [fixed(v) for v in value] if isinstance(value, (list, tuple)) else value

    def meta(m: Meta | None) -> Meta | None:
        return (
            None
            if m is None
            else Meta(dtype=m.dtype, shape=tuple(fixed(s) for s in m.shape), stride=tuple(fixed(s) for s in m.stride))
        )

    def argument(value: Any) -> Any:
        if isinstance(value, dict) and "size" in value:
            return _evaluated(value["size"], hints)
        return [argument(v) for v in value] if isinstance(value, (list, tuple)) else value

    def returned(value: Any) -> Any:
        if isinstance(value, dict) and "tuple" in value:
            return {"tuple": [returned(v) for v in value["tuple"]]}
        return argument(value)

    nodes = tuple(
        msgspec.structs.replace(
            n,
            args=tuple(argument(a) for a in n.args),
            kwargs={k: argument(v) for k, v in n.kwargs.items()},
            outs=tuple(meta(m) for m in n.outs),
        )
        for n in graph.nodes
    )
    inputs = tuple(msgspec.structs.replace(i, meta=meta(i.meta)) for i in graph.inputs)
    guards = [g for g in graph.guards if not any(re.search(rf"\b{s}\b", g) for s in hints)]
    guards += [f"{s.access} == {s.hint}" for s in graph.symbols]
    for tensor in graph.inputs:
        if tensor.kind == "input":
            for k, size in enumerate(tensor.meta.shape):
                text = f"{tensor.access}.shape[{k}] == {fixed(size)}"
                if isinstance(size, str) and text not in guards:
                    guards.append(text)
    empty: tuple[Symbol, ...] = ()
    return msgspec.structs.replace(
        graph,
        nodes=nodes,
        inputs=inputs,
        output=returned(graph.output),
        symbols=empty,
        guards=tuple(guards),
        dynamic=False,
    )


def _evaluated(text: str, hints: Mapping[str, int]) -> int:
    return int(eval(text, {"__builtins__": {}}, {"min": min, "max": max, **hints}))
