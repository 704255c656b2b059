"""Merges the texts of several programs into one, with distinct names for kernels, knobs and constants. Torch-free."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hipwright.program.ast_queries import bound_names
from hipwright.program.blanking import blank
from hipwright.program.parsed import Parsed
from hipwright.toolchain import device_headers

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*\n?", re.MULTILINE)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class RenamedProgram:
    """A program with distinct names.

    includes: its #include lines; hip: the rest of its source, in a namespace; heads: knobs and constants as top-level
    lines; functions: syntax trees by name.
    """

    includes: tuple[str, ...]
    hip: str
    heads: tuple[str, ...]
    functions: dict[str, ast.FunctionDef]


def rename_apart(
    parsed: Parsed, knobs: Mapping[str, int], suffix: str, *, rename_locals: bool = False
) -> RenamedProgram:
    """Appends `suffix` to the names of kernels, knobs and constants; chosen knob values become defaults.

    rename_locals: also renames the locals of the plan, except the inputs, which are shared.
    """
    names = {name: f"{name}{suffix}" for name in (*parsed.signatures, *parsed.knobs, *parsed.constants)}
    chosen = parsed.choose(knobs)
    heads = [
        f"{names[name]} = knob({chosen[name]!r}, choices={list(knob.choices)!r})" for name, knob in parsed.knobs.items()
    ]
    heads += [f"{names[n]} = {_renamed(ast.unparse(value), names)}" for n, value in parsed.constants.items()]
    functions = {}
    for name, function in parsed.functions.items():
        inner = {n: f"{n}{suffix}" for n in sorted(bound_names(function))} if rename_locals else {}
        functions[name] = NameRewriter({**inner, **names}).visit(copy.deepcopy(function))
    includes = tuple(line.strip() for line in _INCLUDE.findall(parsed.hip))
    return RenamedProgram(
        includes, _namespace(_renamed(_INCLUDE.sub("", parsed.hip), names), suffix), tuple(heads), functions
    )


def join(parts: Iterable[RenamedProgram], functions: Iterable[ast.FunctionDef]) -> str:
    """The text of one program with the parts' sources and knobs, and these functions."""
    parts = list(parts)
    lines = list(dict.fromkeys(line for one in parts for line in one.includes))
    headers = device_headers.included("\n".join(lines))
    others = [line for line in lines if not device_headers.included(line)]
    includes = [*others, *device_headers.include_lines(headers)]
    hip = "\n".join([*includes, "", *(one.hip for one in parts)]).strip("\n")
    quotes = "'''" if "'''" not in hip else '"""'
    heads = "\n".join(line for one in parts for line in one.heads)
    plans = "\n\n\n".join(ast.unparse(ast.fix_missing_locations(function)) for function in functions)
    return f"HIP = r{quotes}\n{hip}\n{quotes}\n\n{heads}\n\n\n{plans}\n"


def _namespace(hip: str, suffix: str) -> str:
    """The source in a namespace of its own; its macros are undefined at the end."""
    if not suffix or not hip.strip():
        return hip.strip("\n")
    macros = dict.fromkeys(_DEFINE.findall(blank(hip)))
    ends = "".join(f"\n#undef {name}" for name in macros)
    return f"namespace hw{suffix} {{\n" + hip.strip("\n") + f"\n}}{ends}"


def _renamed(source: str, names: Mapping[str, str]) -> str:
    """Replaces whole words, except members after a dot or an arrow."""
    if not names:
        return source
    pattern = rf"(?<![\w.])(?<!->)(?:{'|'.join(map(re.escape, names))})\b"
    return re.sub(pattern, lambda match: names[match[0]], source)


class NameRewriter(ast.NodeTransformer):
    """Renames the names of a plan; attributes and keywords stay."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A local, a kernel, a knob or a constant."""
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)
