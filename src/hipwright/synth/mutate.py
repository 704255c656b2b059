"""The engine mind's way to new tasks: one typed change to the syntax tree of a given one. Pure; nothing is executed.

Kinds: "shape" (one size, everywhere it stands), "batch" (the leading size of the inputs), "dtype" (half-width inputs
and parameters), "swap" (one operator for another of its family) and "append" (one operator after the last). Whether the
result is a task at all, the self-check says (synth/check.py).
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
"""What can stand after a forward that returns one tensor, `last`."""

_MAKERS = ("randn", "rand", "randint", "ones", "zeros", "empty", "full")
_FLOAT_MAKERS = ("randn", "rand")
_GIVERS = ("get_inputs", "get_init_inputs", "get_input_groups")
_NARROW = ("bfloat16", "float16")
_LARGEST = 1 << 16  # of one size


class Mutated(Record, frozen=True, kw_only=True):
    """One changed task. detail: what was changed, in words."""

    kind: Kind
    detail: str
    source: str


Change = tuple[str, Callable[[ast.Module], None]]  # in words, and what does it to a fresh tree


def mutations(source: str, rng: random.Random) -> list[Mutated]:
    """One mutation of every place where there is one; `rng` draws new sizes and operators. [] if it is not Python."""
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    makers: dict[Kind, Callable[[ast.Module, random.Random], Iterator[Change]]] = {
        "shape": _shapes,
        "batch": _batches,
        "dtype": _dtypes,
        "swap": _swaps,
        "append": _appends,
    }
    found = []
    for kind in KINDS:
        for detail, apply in makers[kind](tree, rng):
            changed = syntax.parse(source)
            apply(changed)
            _describe(changed, detail)
            text = ast.unparse(ast.fix_missing_locations(changed)) + "\n"
            found.append(Mutated(kind=kind, detail=detail, source=text))
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
    new = rng.choice([n for n in (1, 3, old * 2, old * 4 + 1) if n != old and n <= _LARGEST] or [2])

    def apply(changed: ast.Module) -> None:
        for node in _leading(changed):
            if node.value == old:
                node.value = new

    yield f"leading size {old} is {new}", apply


def _size_nodes(tree: ast.Module) -> list[ast.Constant]:
    """Integers of at least 2 in the functions that give inputs, and in the constants at the top."""
    found = []
    for top in tree.body:
        constant = isinstance(top, ast.Assign) and isinstance(top.value, ast.Constant)
        if constant or (isinstance(top, ast.FunctionDef) and top.name in _GIVERS):
            found += [n for n in ast.walk(top) if isinstance(n, ast.Constant) and type(n.value) is int and n.value >= 2]
    return found


def _leading(tree: ast.Module) -> list[ast.Constant]:
    """The first size of each tensor that get_inputs makes: the number itself, or the constant at the top it names."""
    constants = {
        top.targets[0].id: top.value
        for top in tree.body
        if isinstance(top, ast.Assign) and isinstance(top.targets[0], ast.Name) and isinstance(top.value, ast.Constant)
    }
    found = []
    for call in _calls(_function(tree, "get_inputs"), _MAKERS):
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
    """Twice, half, one more or three less: even, odd and unaligned sizes."""
    near = [n for n in (old * 2, old // 2, old + 1, old - 3, old + old // 2) if 2 <= n <= _LARGEST and n != old]
    return rng.choice(near or [old + 1])


# ---------------------------------------------------------------- dtype


def _dtypes(tree: ast.Module, rng: random.Random) -> Iterator[Change]:
    """Only where the file says nothing of dtypes itself."""
    text = ast.unparse(tree)
    makers = _calls(_function(tree, "get_inputs"), _FLOAT_MAKERS)
    if not makers or any(word in text for word in ("dtype", "float", "half(", ".to(")):
        return
    name = rng.choice(_NARROW)

    def apply(changed: ast.Module) -> None:
        for call in _calls(_function(changed, "get_inputs"), _FLOAT_MAKERS):
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
    """As a method or of torch where the family is, else of torch.nn(.functional); options that only one knows go."""
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
    for words, code in rng.sample(APPENDED, 3):

        def apply(changed: ast.Module, code: str = code) -> None:
            body, last = _last_return(changed) or ([], None)
            if last is not None and last.value is not None:
                named = ast.Assign([ast.Name("last", ast.Store())], last.value)
                body[body.index(last) :] = [named, *syntax.parse(f"return {code}").body]

        yield f"{words} is appended", apply


def _last_return(tree: ast.Module) -> tuple[list[ast.stmt], ast.Return] | None:
    """The body of forward and the return that ends it; None where that is no single value."""
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


def _describe(tree: ast.Module, detail: str) -> None:
    """The change stands in the file's own documentation, above what was there."""
    old = ast.get_docstring(tree)
    if old is not None:
        tree.body.pop(0)
    text = f"{old.splitlines()[0]} Changed: {detail}." if old else f"Changed: {detail}."
    tree.body.insert(0, ast.Expr(ast.Constant(text)))
