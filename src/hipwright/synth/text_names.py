"""Names in task files, for text_steps.py: one canonical name for each operator, and calls that are no steps."""

from __future__ import annotations

import ast
import re

from hipwright.archive.code_features import snake

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
OTHER_NAMES = {
    "multiply": "mul",
    "subtract": "sub",
    "divide": "div",
    "true_divide": "div",
    "negative": "neg",
    "rsub": "sub",
    "absolute": "abs",
    "clip": "clamp",
    "clamp_min": "clamp",
    "clamp_max": "clamp",
    "relu6": "clamp",
    "max": "amax",
    "hardtanh": "clamp",
    "min": "amin",
    "concat": "cat",
    "concatenate": "cat",
    "mm": "matmul",
    "bmm": "matmul",
    "square": "pow",
    "arccos": "acos",
    "arcsin": "asin",
    "arctan": "atan",
    "greater": "gt",
    "less": "lt",
    "greater_equal": "ge",
    "less_equal": "le",
    "not_equal": "ne",
    "cross_entropy_loss": "cross_entropy",
    "masked_fill": "where",
    "hstack": "cat",
    "vstack": "cat",
    "norm": "vector_norm",
    "logical_and": "and",
    "logical_or": "or",
    "bitwise_and": "and",
    "bitwise_or": "or",
}
STEPLESS = frozenset(
    {
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "contiguous",
        "to",
        "float",
        "half",
        "bfloat16",
        "double",
        "type",
        "type_as",
        "unsqueeze",
        "squeeze",
        "expand",
        "expand_as",
        "permute",
        "transpose",
        "t",
        "movedim",
        "swapaxes",
        "clone",
        "detach",
        "identity",
        "dropout",
        "view_as",
        "reshape_as",
        "broadcast_to",
        "requires_grad_",
        "list",
        "tuple",
        "alias",
        "moveaxis",
        "swapdims",
        "adjoint",
        "dropout1d",
        "dropout2d",
        "dropout3d",
        "alpha_dropout",
        "broadcast_tensors",
        "chunk",
        "split",
        "unbind",
        "narrow",
        "select",
        "ravel",
        "atleast1d",
        "atleast2d",
        "long",
        "int",
        "reversed",
        "zip",
        "enumerate",
    }
)
NOT_TENSORS = frozenset(
    {"size", "dim", "numel", "len", "range", "is_floating_point", "finfo", "iinfo", "print", "super"}
)
STATE = frozenset({"parameter", "buffer", "register_buffer", "register_parameter"})
ROOTS = frozenset({"torch", "nn", "F", "functional", "math", "special", "linalg", "fft", "ops", "aten"})
SETTINGS = frozenset({"eval", "train", "to", "float", "half", "double", "bfloat16", "requires_grad_"})  # of a module

# modes that add no suffix
DEFAULT_MODES = frozenset({"mean", "none", "nearest", "zeros", "constant", "floor"})


def mode_suffix(call: ast.expr) -> str:
    """The string arguments of a call that select a mode, as in " nearest-exact" or " tanh"; "" for default modes."""
    if not isinstance(call, ast.Call) or canonical_name(last_name(call.func)) == "einsum":
        return ""
    given = [a.value for a in (*call.args, *(k.value for k in call.keywords)) if isinstance(a, ast.Constant)]
    return "".join(f" {mode}" for mode in given if isinstance(mode, str) and mode not in DEFAULT_MODES)


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name; "" for any other expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def canonical_name(name: str) -> str:
    """The canonical name of an operator: one for LayerNorm and layer_norm, for clip and clamp, for mm and bmm."""
    plain = snake(name).strip("_")
    rank = re.search(r"[123]d$", name)
    if rank and "norm" not in plain:  # functions of norms have no rank in their name
        plain += rank[0]
    return OTHER_NAMES.get(plain, plain)


def is_torch_name(node: ast.expr) -> bool:
    """Whether a dotted name begins at torch or one of its parts."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ROOTS
