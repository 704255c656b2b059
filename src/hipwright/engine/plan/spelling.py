"""Values of a captured graph as text of the launch plan: arguments, outputs, attribute paths, reserved names."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hipwright.capture.graph import Meta, short
from hipwright.program.language import FACTORIES

PYTHON_NAMES = frozenset(keyword.kwlist) | {
    "self",
    "torch",
    "F",
    "nn",
    "math",
    "min",
    "max",
    "len",
    "range",
    "int",
    "float",
    "bool",
    "abs",
    "sum",
    "round",
    "tuple",
    "cdiv",
    "zip",
    "enumerate",
    "reversed",
    "next_pow2",
    "knob",
    "HIP",
}
"""Names that mean something in a plan, which no local may have."""


FUNCTIONAL = {
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "scaled_dot_product_attention",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "bilinear",
}
TORCH = {"mm", "bmm", "addmm", "baddbmm", "matmul", "einsum", "dot", "mv", "lstm", "gru", "rnn_tanh", "rnn_relu"}
PUBLIC = {
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
    "_conj": "conj",
}
"""Operators of Python, and a private one, by the names under which a plan may call them."""


def library_name(op: str) -> str:
    """How a plan calls an operator of a graph: makers of tensors under `torch`, which places them on the device."""
    kind = short(op)
    if op in ("aten.view.default", "aten._unsafe_view.default"):  # on a device a library's result may lie otherwise
        return "torch.reshape"
    if kind in FUNCTIONAL and op.endswith((".default", ".padding", ".input")):
        return f"F.{kind}"
    if kind in TORCH or kind in FACTORIES:
        return f"torch.{kind}"
    return f"torch.{PUBLIC[kind]}" if kind in PUBLIC else f"torch.ops.{op}"


def spell(argument: Any, name: Callable[[str], str]) -> str:
    """An operator's argument. name: the plan's name of a node's value."""
    if isinstance(argument, dict):
        if "node" in argument:
            return name(argument["node"])
        if "size" in argument:
            return str(argument["size"])
        if "float" in argument:
            return {"inf": "math.inf", "-inf": "-math.inf"}.get(argument["float"], "math.nan")
        return str(argument["complex"]) if "complex" in argument else f"torch.{argument['dtype']}"
    if isinstance(argument, (list, tuple)):
        return f"[{', '.join(spell(a, name) for a in argument)}]"
    return argument if isinstance(argument, str) and argument.startswith("torch.") else repr(argument)


def returned(output: Any, names: Mapping[str, str]) -> str:
    """The expression that `forward` returns: the graph's nesting of outputs, with the names of their values."""
    if isinstance(output, dict):
        if "node" in output:
            return names[output["node"]]
        if "tuple" in output:
            inner = [returned(o, names) for o in output["tuple"]]
            return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
        if "map" in output:
            return "{" + ", ".join(f"{k!r}: {returned(v, names)}" for k, v in output["map"]) + "}"
        return str(output.get("text", output.get("size", output)))
    if isinstance(output, (list, tuple)):
        return f"[{', '.join(returned(o, names) for o in output)}]"
    return repr(output)


def self_path(access: str, positions: Mapping[str, int]) -> str:
    """`self.net.0.weight` -> `self.net[0].weight`; `self.net.block1-0.weight` -> `self.net['block1-0'].weight`.

    positions: as of Graph; a slice of a Sequential keeps the names of its items, and an index is a place.
    """
    head, *names = access.split(".") if access.startswith("self.") else [access]
    places = [positions.get(".".join(names[: k + 1])) for k in range(len(names))]
    return head + "".join(_member(name if at is None else str(at)) for name, at in zip(names, places, strict=True))


def _member(name: str) -> str:
    if name.isdigit():
        return f"[{name}]"
    return f".{name}" if name.isidentifier() and not keyword.iskeyword(name) else f"[{name!r}]"


def has_gaps(meta: Meta | None) -> bool:
    """Whether no dimension's elements are neighbours, as on the diagonal that an einsum returns a view of."""
    return meta is not None and bool(meta.stride) and 1 not in meta.stride


def trimmed(args: Sequence[Any]) -> list[Any]:
    """Arguments of an operator without those at the end that are None."""
    out = list(args)
    while len(out) > 1 and out[-1] is None:
        out.pop()
    return out
