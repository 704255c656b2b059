"""Finds the native extensions of a ModelNew file, without running it if their arguments are constants.

An `Extension` is one call of `torch.utils.cpp_extension.load_inline` or `load`; its key identifies it in discovery,
build and run. The extension's name is not part of the key: candidates make it unique in ways that differ between runs.
"""

from __future__ import annotations

import ast
import contextlib
import operator
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from hipwright.program.language import MATH
from hipwright.program.modelnew.check import dotted_path, imports
from hipwright.records import Record, content_key

LOADERS = ("torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load")
_LIMIT = 4_000_000  # characters of one evaluated string
_FLAG = re.compile(
    r"-(?:O[0-3sz]|Ofast|std=[\w+]+|[DU][A-Za-z_]\w*(?:=[\w.+-]*)?|-?use_fast_math|-?lineinfo|-?expt-[\w-]+|-?extended-lambda|"
    r"ffast-math|fno-[\w-]+|funroll-loops|W\w[\w-]*|w|-?maxrregcount=\d+|-?ftz=\w+|-?fmad=\w+|-?prec-(?:div|sqrt)=\w+|-?ptxas-options=\S+|"
    r"munsafe-fp-atomics|mllvm|save-temps=none)"
)


class Extension(Record, frozen=True, kw_only=True):
    """One native extension. functions: exported name -> docstring; () when the source has its own PYBIND11_MODULE."""

    cpp: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    bare: bool = False

    @property
    def source(self) -> str:
        """All of its source text."""
        return "\n".join((*self.cpp, *self.cuda))


class Unknown(Exception):
    """An argument is not a constant."""


def inline(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Extension:
    """The Extension of a call load_inline(*args, **kwargs). Raises Unknown for arguments of other kinds."""
    given = dict(zip(("name", "cpp_sources", "cuda_sources"), args, strict=False)) | dict(kwargs)
    if len(args) > 3:  # versions of torch differ from the fourth position on
        given.setdefault("functions", next((a for a in args[3:] if isinstance(a, (list, tuple, dict))), None))
    functions = given.get("functions")
    names = [functions] if isinstance(functions, str) else list(functions or ())
    return Extension(
        cpp=_texts(given.get("cpp_sources")),
        cuda=_texts(given.get("cuda_sources")),
        functions=tuple(map(str, names)),
        cflags=flags(given.get("extra_cflags")),
        cuda_cflags=flags(given.get("extra_cuda_cflags")),
        ldflags=tuple(f for f in _texts(given.get("extra_ldflags")) if re.fullmatch(r"-l[\w.+-]+", f)),
        bare=bool(given.get("no_implicit_headers", False)),
    )


def from_files(kwargs: Mapping[str, Any], read: Callable[[str], str]) -> Extension:
    """The Extension of a call load(**kwargs). read: returns a source file's text."""
    cpp: list[str] = []
    cuda: list[str] = []
    for path in _texts(kwargs.get("sources")):
        (cuda if path.endswith((".cu", ".hip")) else cpp).append(read(path))
    return Extension(
        cpp=tuple(cpp),
        cuda=tuple(cuda),
        cflags=flags(kwargs.get("extra_cflags")),
        cuda_cflags=flags(kwargs.get("extra_cuda_cflags")),
        bare=True,
    )


def flags(value: Any) -> tuple[str, ...]:
    """The compiler flags that change code and read no files; others (paths, plugins, architectures) are dropped."""
    return tuple(f for f in _texts(value) if _FLAG.fullmatch(f))


def key(extension: Extension) -> str:
    """The key of an extension; independent of `bare`, which may depend on torch's version."""
    return content_key("extension", msgspec.structs.replace(extension, bare=False).to_json())


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise Unknown("sources and flags are strings or lists of strings")


# ---------------------------------------------------------------- without running the file


def static_extensions(tree: ast.Module) -> tuple[tuple[ast.Call, Extension], ...]:
    """Every load_inline call with constant arguments. Raises Unknown when one is not constant, or `load` is used."""
    names = imports(tree)
    found = []
    for call, scope in _calls(tree):
        path = dotted_path(call.func, names)
        if path == LOADERS[1]:
            raise Unknown("load() reads source files")
        if path == LOADERS[0]:
            env = _environment(tree, scope, names)
            args = [evaluate(a, env, names) for a in call.args]
            made = inline(args, _keywords(call, env, names))
            no_implicit_headers = any(
                isinstance(n, ast.Constant) and n.value == "no_implicit_headers" for n in ast.walk(tree)
            )
            found.append((call, msgspec.structs.replace(made, bare=made.bare or no_implicit_headers)))
    return tuple(found)


def uses_extensions(tree: ast.Module) -> bool:
    """Whether the file mentions a loader."""
    names = imports(tree)
    paths = (dotted_path(n, names) for n in ast.walk(tree) if isinstance(n, (ast.Name, ast.Attribute)))
    return any(path in LOADERS for path in paths)


def _keywords(call: ast.Call, env: Mapping[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The keyword arguments that matter."""
    found: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            with contextlib.suppress(Unknown):  # options that depend on torch's version do not change the source
                found |= evaluate(keyword.value, env, names)
        elif keyword.arg not in ("verbose", "name", "build_directory", "extra_include_paths", "with_cuda"):
            found[keyword.arg] = evaluate(keyword.value, env, names)
    return found


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, tuple[ast.AST, ...]]]:
    """(loader call, the enclosing functions from the outermost in)."""

    def walk(node: ast.AST, scope: tuple[ast.AST, ...]) -> Iterator[tuple[ast.Call, tuple[ast.AST, ...]]]:
        if isinstance(node, ast.Call):
            yield node, scope
        inner = (*scope, node) if isinstance(node, ast.FunctionDef) else scope
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inner)

    return walk(tree, ())


def _environment(tree: ast.Module, scope: Sequence[ast.AST], names: dict[str, str]) -> dict[str, Any]:
    """The names with constant values at the top level and in the enclosing functions."""
    env = constants(tree.body, names)
    for function in scope:
        assert isinstance(function, ast.FunctionDef)
        env = constants(function.body, names, {k: v for k, v in env.items() if k not in _arguments(function)})
    return env


def _arguments(function: ast.FunctionDef) -> set[str]:
    return {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}


def constants(
    body: Sequence[ast.stmt], names: dict[str, str], before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The names to which straight-line assignments of `body` give constant values."""
    env = dict(before or {})
    for node in body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and isinstance(target, ast.Name):
            try:
                value = evaluate(node.value, env, names) if node.value is not None else None
                if isinstance(node, ast.AugAssign):
                    value = _added(env[target.id], value)
                env[target.id] = value
            except (Unknown, KeyError):
                env.pop(target.id, None)
        elif isinstance(node, (ast.If, ast.For, ast.While, ast.Try, ast.With)):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    env.pop(inner.id, None)
    return env


_STRING_METHODS = (
    "replace",
    "strip",
    "lstrip",
    "rstrip",
    "format",
    "join",
    "lower",
    "upper",
    "removeprefix",
    "removesuffix",
    "splitlines",
    "split",
    "expandtabs",
)


_PLAIN: dict[str, Callable[..., Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "list": list,
    "tuple": tuple,
    "len": len,
    "min": min,
    "max": max,
}


def evaluate(node: ast.expr, env: Mapping[str, Any], names: Mapping[str, str] | None = None) -> Any:
    """The value of an expression of constants, lists, dicts, f-strings and string methods. Raises Unknown."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            if node.id in env:
                return env[node.id]
        case ast.List() | ast.Tuple():
            items = [evaluate(e, env, names) for e in node.elts]
            return items if isinstance(node, ast.List) else tuple(items)
        case ast.Dict():
            return {
                evaluate(k, env, names): evaluate(v, env, names)
                for k, v in zip(node.keys, node.values, strict=True)
                if k
            }
        case ast.JoinedStr():
            return _small("".join(map(str, (evaluate(v, env, names) for v in node.values))))
        case ast.FormattedValue(conversion=-1, format_spec=None):
            return str(evaluate(node.value, env, names))
        case ast.UnaryOp(op=ast.USub()):
            value = evaluate(node.operand, env, names)
            if isinstance(value, (int, float)):
                return -value
        case ast.BinOp():
            return _binary(node.op, evaluate(node.left, env, names), evaluate(node.right, env, names))
        case ast.Subscript():
            return _item(evaluate(node.value, env, names), evaluate(node.slice, env, names))
        case ast.Call():
            return _call(node, env, names)
    raise Unknown(f"not a constant: {ast.unparse(node)[:80]}")


def _item(value: Any, index: Any) -> Any:
    try:
        return value[index]
    except (TypeError, LookupError):
        raise Unknown("not a constant item") from None


def _call(node: ast.Call, env: Mapping[str, Any], names: Mapping[str, str] | None) -> Any:
    args = [evaluate(a, env, names) for a in node.args]
    kwargs = {k.arg: evaluate(k.value, env, names) for k in node.keywords if k.arg}
    func = node.func
    path = dotted_path(func, dict(names or {}))
    try:
        if path.startswith("math.") and path[5:] in MATH:
            return MATH[path[5:]](*args)
        if path == "textwrap.dedent":
            return textwrap.dedent(*args)
        if path in _PLAIN:
            return _PLAIN[path](*args)
        if isinstance(func, ast.Attribute) and func.attr in _STRING_METHODS:
            owner = evaluate(func.value, env, names)
            if isinstance(owner, str) and not re.search(r"\{[^{}]*[.\[]", owner if func.attr == "format" else ""):
                return _small(getattr(owner, func.attr)(*args, **kwargs))
    except (TypeError, ValueError, LookupError) as error:
        raise Unknown(str(error)) from None
    raise Unknown(f"not a constant: {ast.unparse(node)[:80]}")


_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}


def _binary(op: ast.operator, a: Any, b: Any) -> Any:
    try:
        if isinstance(op, ast.Add):
            return _added(a, b)
        if isinstance(op, ast.Mod) and isinstance(a, str):
            return _small(a % b)
        numbers = isinstance(a, (int, float)) and isinstance(b, (int, float))
        if numbers and type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](a, b)
        if numbers and isinstance(op, (ast.Pow, ast.LShift)) and abs(b) <= 64 and abs(a) < 2**32:
            return a**b if isinstance(op, ast.Pow) else a << b
    except (TypeError, ValueError, ArithmeticError) as error:
        raise Unknown(str(error)) from None
    raise Unknown("not a constant operation")


def _added(a: Any, b: Any) -> Any:
    if type(a) is not type(b) and not (isinstance(a, (int, float)) and isinstance(b, (int, float))):
        raise Unknown("different kinds are added")
    if not isinstance(a, (int, float, str, list, tuple)):
        raise Unknown("not a constant sum")
    return _small(a + b)


def _small(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LIMIT:
        raise Unknown("too long")
    return value
