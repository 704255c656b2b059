"""Mutation: new tasks by one typed change to the syntax tree of a given task. Pure; nothing is executed.

Kinds: "shape" (one size, wherever it occurs), "batch" (the leading size of the inputs), "dtype" (16-bit inputs and
parameters), "swap" (one operator replaced by another of its family) and "append" (one operator after the last). The
self-check (check.py) decides whether the result is a valid task.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from typing import Literal

from hipwright import syntax
from hipwright.records import Record

Kind = Literal["shape", "batch", "dtype", "swap", "append"]
KINDS: tuple[Kind, ...] = ("shape", "batch", "dtype", "swap", "append")

FAMILIES: tuple[tuple[str, ...], ...] = (
    ("relu", "gelu", "silu", "softplus", "elu", "mish", "hardswish"),
    ("softmax", "log_softmax"),
    ("max_pool2d", "avg_pool2d"),
    ("mean", "sum", "amax", "amin"),
    ("cumsum", "logcumsumexp"),
)
"""Operators that take the same arguments; the first three families are in torch.nn.functional."""

MODULES: tuple[tuple[str, ...], ...] = (("ReLU", "GELU", "SiLU", "Softplus", "ELU", "Mish"),)
"""Modules of torch.nn that are made without arguments."""

APPENDED: tuple[tuple[str, str], ...] = (
    ("GELU", "torch.nn.functional.gelu(last)"),
    ("SiLU", "torch.nn.functional.silu(last)"),
    ("softmax over the last dimension", "torch.softmax(last, dim=-1)"),
    ("layer norm over the last dimension", "torch.nn.functional.layer_norm(last, last.shape[-1:])"),
    ("mean over the last dimension", "last.mean(dim=-1)"),
    ("maximum over the last dimension", "last.amax(dim=-1)"),
    ("length of the last dimension", "torch.nn.functional.normalize(last, dim=-1)"),
    ("clamp", "last.clamp(-0.75, 1.25)"),
    ("scale and shift", "last * 0.5 + 0.25"),
    ("running sum over the last dimension", "last.cumsum(dim=-1)"),
)
"""(description, expression of `last`): operators to append to a forward that returns one tensor, `last`."""

_FACTORIES = ("randn", "rand", "randint", "ones", "zeros", "empty", "full")
_FLOAT_FACTORIES = ("randn", "rand")
_INPUT_FUNCTIONS = ("get_inputs", "get_init_inputs", "get_input_groups")
_HALF_DTYPES = ("bfloat16", "float16")
_MAX_SIZE = 1 << 16  # of one size


class TaskMutation(Record, frozen=True, kw_only=True):
    """One changed task. detail: the change as text."""

    kind: Kind
    detail: str
    source: str


Change = tuple[str, Callable[[ast.Module], None]]  # (its description, a function that applies it to a tree)


def mutations(source: str, rng: random.Random) -> list[TaskMutation]:
    """One mutation for every place that can be changed; `rng` draws new sizes and operators. [] if it is not Python."""
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    changes: dict[Kind, Callable[[ast.Module, random.Random], Iterator[Change]]] = {
        "shape": _shapes,
        "batch": _batches,
        "dtype": _dtypes,
        "swap": _swaps,
        "append": _appends,
    }
    found = []
    for kind in KINDS:
        for detail, apply in changes[kind](tree, rng):
            changed = syntax.parse(source)
            apply(changed)
            _document(changed, detail)
            text = ast.unparse(ast.fix_missing_locations(changed)) + "\n"
            found.append(TaskMutation(kind=kind, detail=detail, source=text))
    return found


# ---------------------------------------------------------------- sizes


def _shapes(tree: ast.Module, rng: random.Random) -> Iterator[Change]:
    sizes = sorted({node.value for node in _size_nodes(tree) if isinstance(node.value, int)})
    for old in sizes:
        new = _other_size(old, rng)

        def apply(changed: ast.Module, old: int = old, new: int = new) -> None:
            for node in _size_nodes(changed):
                if node.value == old:
                    node.value = new

        yield f"size {old} is {new}", apply


def _batches(tree: ast.Module, rng: random.Random) -> Iterator[Change]:
    leading = _leading(tree)
    if not leading:
        return
    old = leading[0].value
    assert isinstance(old, int)
    new = rng.choice([n for n in (1, 3, old * 2, old * 4 + 1) if n != old and n <= _MAX_SIZE] or [2])

    def apply(changed: ast.Module) -> None:
        for node in _leading(changed):
            if node.value == old:
                node.value = new

    yield f"leading size {old} is {new}", apply


def _size_nodes(tree: ast.Module) -> list[ast.Constant]:
    """Integers of at least 2 in the functions that return inputs and in the constants at module level."""
    found = []
    for top in tree.body:
        constant = isinstance(top, ast.Assign) and isinstance(top.value, ast.Constant)
        if constant or (isinstance(top, ast.FunctionDef) and top.name in _INPUT_FUNCTIONS):
            found += [n for n in ast.walk(top) if isinstance(n, ast.Constant) and type(n.value) is int and n.value >= 2]
    return found


def _leading(tree: ast.Module) -> list[ast.Constant]:
    """The first size of each tensor of get_inputs: the literal, or that of the module constant it names."""
    constants = {
        top.targets[0].id: top.value
        for top in tree.body
        if isinstance(top, ast.Assign) and isinstance(top.targets[0], ast.Name) and isinstance(top.value, ast.Constant)
    }
    found = []
    for call in _calls(_function(tree, "get_inputs"), _FACTORIES):
        sizes = [arg for arg in call.args if not (_called(call) == "randint" and isinstance(arg, ast.Constant))]
        first: ast.expr | None = sizes[0] if sizes else None
        if isinstance(first, (ast.Tuple, ast.List)):
            first = first.elts[0] if first.elts else None
        if isinstance(first, ast.Name):
            first = constants.get(first.id)
        if isinstance(first, ast.Constant) and type(first.value) is int:
            found.append(first)
    return found


def _other_size(old: int, rng: random.Random) -> int:
    """Twice, half, one and a half times, one more or three less: even, odd and unaligned sizes."""
    near = [n for n in (old * 2, old // 2, old + 1, old - 3, old + old // 2) if 2 <= n <= _MAX_SIZE and n != old]
    return rng.choice(near or [old + 1])


# ---------------------------------------------------------------- dtype


def _dtypes(tree: ast.Module, rng: random.Random) -> Iterator[Change]:
    """16-bit inputs and parameters, for files that do not mention dtypes."""
    text = ast.unparse(tree)
    factories = _calls(_function(tree, "get_inputs"), _FLOAT_FACTORIES)
    if not factories or any(word in text for word in ("dtype", "float", "half(", ".to(")):
        return
    name = rng.choice(_HALF_DTYPES)

    def apply(changed: ast.Module) -> None:
        for call in _calls(_function(changed, "get_inputs"), _FLOAT_FACTORIES):
            call.keywords.append(ast.keyword("dtype", syntax.parse(f"torch.{name}", mode="eval").body))
        if (made := _method(changed, "__init__")) is not None:
            made.body += syntax.parse(f"self.to(torch.{name})").body

    yield f"inputs and parameters are {name}", apply


# ---------------------------------------------------------------- operators


def _swaps(tree: ast.Module, rng: random.Random) -> Iterator[Change]:
    for scope, families in (("forward", FAMILIES), ("__init__", MODULES)):
        for place, call in enumerate(_method_calls(tree, scope)):
            name = _called(call)
            for family in (one for one in families if name in one):
                new = rng.choice([other for other in family if other != name])

                def apply(changed: ast.Module, scope: str = scope, place: int = place, new: str = new) -> None:
                    _rename(_method_calls(changed, scope)[place], new)

                yield f"{name} is {new}", apply


def _rename(call: ast.Call, new: str) -> None:
    """Call `new` instead, as before or from torch.nn; options that only one of the operators has are dropped."""
    assert isinstance(call.func, ast.Attribute)
    if new in FAMILIES[0]:
        call.keywords = []
    if new in (*FAMILIES[0], *FAMILIES[1], *FAMILIES[2]):
        tensor = call.func.value
        if not (isinstance(tensor, ast.Name) and tensor.id in ("torch", "F")) and not _is_functional(tensor):
            call.args = [tensor, *call.args]  # x.relu() -> torch.nn.functional.gelu(x)
        call.func = _expression(f"torch.nn.functional.{new}")
    elif any(new in family for family in MODULES):
        call.args, call.keywords, call.func = [], [], _expression(f"torch.nn.{new}")
    else:
        call.func.attr = new


def _appends(tree: ast.Module, rng: random.Random) -> Iterator[Change]:
    if _last_return(tree) is None:
        return
    for phrase, code in rng.sample(APPENDED, 3):

        def apply(changed: ast.Module, code: str = code) -> None:
            body, last = _last_return(changed) or ([], None)
            if last is not None and last.value is not None:
                named = ast.Assign([ast.Name("last", ast.Store())], last.value)
                body[body.index(last) :] = [named, *syntax.parse(f"return {code}").body]

        yield f"{phrase} is appended", apply


def _last_return(tree: ast.Module) -> tuple[list[ast.stmt], ast.Return] | None:
    """(the body of forward, the return that ends it); None unless it returns a single value."""
    forward = _method(tree, "forward")
    last = forward.body[-1] if forward is not None else None
    if forward is None or not isinstance(last, ast.Return) or last.value is None:
        return None
    return None if isinstance(last.value, (ast.Tuple, ast.List, ast.Dict)) else (forward.body, last)


# ---------------------------------------------------------------- places in a tree


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    return next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name), None)


def _method(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    return next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == name), None) if model else None


def _calls(scope: ast.AST | None, names: tuple[str, ...]) -> list[ast.Call]:
    if scope is None:
        return []
    return [n for n in ast.walk(scope) if isinstance(n, ast.Call) and _called(n) in names]


def _method_calls(tree: ast.Module, name: str) -> list[ast.Call]:
    every = {one for family in (*FAMILIES, *MODULES) for one in family}
    return _calls(_method(tree, name), tuple(every))


def _called(call: ast.Call) -> str:
    """The last part of a dotted name, "" for anything else."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _is_functional(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("functional", "nn")


def _expression(text: str) -> ast.expr:
    return syntax.parse(text, mode="eval").body


def _document(tree: ast.Module, detail: str) -> None:
    """Add the change to the module docstring; of the old one the first line stays."""
    old = ast.get_docstring(tree)
    if old is not None:
        tree.body.pop(0)
    text = f"{old.splitlines()[0]} Changed: {detail}." if old else f"Changed: {detail}."
    tree.body.insert(0, ast.Expr(ast.Constant(text)))
