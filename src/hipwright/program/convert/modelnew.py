"""Converts a ModelNew file to a program where its host code is simple enough. Torch-free; nothing is executed.

The kernels keep their bodies (`cuda_device`), the C++ host functions become statements of the plan (`cpp_host`), and
so does ModelNew.forward (`program.convert.forward_plan`). What has no counterpart raises ProgramError with the reason;
the file can then still be run as it is. A conversion is never trusted: the program it gives is verified like any other.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence

from hipwright import syntax
from hipwright.errors import ProgramError
from hipwright.program.convert.cpp_host import HostTranslator
from hipwright.program.convert.cpp_text import CppItem, ExtensionSource, Inconvertible, split_items
from hipwright.program.convert.cuda_device import DeviceSource
from hipwright.program.convert.exported import exported_program
from hipwright.program.convert.forward_expression import Extensions
from hipwright.program.convert.forward_plan import Forward
from hipwright.program.convert.forward_state import class_named, method, read
from hipwright.program.convert.plan_writer import PlanLines
from hipwright.program.language import RESERVED
from hipwright.program.modelnew.check import imports, parse_model_new
from hipwright.program.modelnew.extensions import Extension, Unknown, constants, static_extensions
from hipwright.program.parse import parse
from hipwright.records import Program


def from_modelnew(text: str, task_source: str) -> Program:
    """Converts a ModelNew file for a task. Raises ProgramError with the reason where that is impossible."""
    tree = parse_model_new(text)
    try:
        found = static_extensions(tree)
        program = exported_program(tree, [e for _, e in found]) or _converted(tree, found, task_source)
    except Unknown as error:
        raise Inconvertible(f"the extension's arguments are not constants ({error})") from None
    except RecursionError:
        raise Inconvertible("the file is nested too deeply") from None
    parse(program.text)  # the result must be a valid program
    return program


def _converted(tree: ast.Module, found: Sequence[tuple[ast.Call, Extension]], task_source: str) -> Program:
    owner = class_named(tree, "ModelNew")
    assert owner is not None
    forward = method(owner, "forward")
    if forward is None:
        raise Inconvertible("ModelNew has no forward of its own")
    sources = [split_items((*e.cpp, *e.cuda)) for _, e in found]
    if not any(source.functions("kernel") for source in sources):
        raise Inconvertible("the file has no kernels of its own")
    if len(sources) > 1:
        _no_clash(sources)
    used = {n.id for n in ast.walk(forward) if isinstance(n, ast.Name)} | {a.arg for a in forward.args.args}
    writer = PlanLines(set(RESERVED) | used | {name for s in sources for name in s.functions("kernel")})
    devices = [DeviceSource(source) for source in sources]
    hosts = [HostTranslator(s, writer, d.launched) for s, d in zip(sources, devices, strict=True)]
    functions = [_exported(e, s) for (_, e), s in zip(found, sources, strict=True)]
    bound = _names(tree, [call for call, _ in found])
    extensions = Extensions(bound, _aliases(tree, bound), functions, hosts)
    attributes = read(tree, task_source)
    plan = Forward(tree, owner, attributes, extensions, writer, constants(tree.body, imports(tree))).convert(forward)
    plan = ast.unparse(syntax.parse(plan))  # drops redundant brackets
    hip = "\n".join(device.text() for device in devices)
    hip = _defines(found) + hip
    if "'''" in hip:
        raise Inconvertible("the kernels contain '''")
    return Program(text=f"\"\"\"Converted from a ModelNew file.\"\"\"\n\nHIP = r'''\n{hip}\n'''\n\n\n{plan}\n")


def _defines(found: Sequence[tuple[ast.Call, Extension]]) -> str:
    """The -D flags of the build as macros."""
    given = dict.fromkeys(f for _, e in found for f in e.cuda_cflags if re.match(r"-D[A-Za-z_]\w*(=-?\d+)?$", f))
    pairs = [f[2:].partition("=") for f in given if not f.startswith("-D__")]
    return "".join(f"#define {name} {value or 1}\n" for name, _, value in pairs)


def _no_clash(sources: Sequence[ExtensionSource]) -> None:
    """Checks that extensions, which become one source, define different names."""
    seen: set[str] = set()
    for source in sources:
        names = {i.name for i in source.items if i.name and i.kind in ("kernel", "device", "define")}
        if seen & names:
            raise Inconvertible(f"two extensions both define {min(seen & names)}")
        seen |= names


def _exported(extension: Extension, source: ExtensionSource) -> dict[str, CppItem]:
    """{exported Python name: host function} of an extension."""
    hosts = source.functions("host")
    found = {name: hosts[name] for name in extension.functions if name in hosts}
    for item in source.items:
        if item.kind == "binding":
            for name, target in re.findall(r"\.def\(\s*\"(\w+)\"\s*,\s*&?\s*([\w:]+)", item.body):
                if target.split("::")[-1] in hosts:
                    found[name] = hosts[target.split("::")[-1]]
    return found


def _names(tree: ast.Module, calls: Sequence[ast.Call]) -> dict[str, int]:
    """Every name bound to an extension (a variable or self.attribute) -> its index; calls of builders are followed."""
    makers: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            inside = [i for i, call in enumerate(calls) if any(n is call for n in ast.walk(node))]
            if len(inside) == 1:
                makers[node.name] = inside[0]
    names: dict[str, int] = {}
    for _ in range(3):  # self.ext = ext, where ext = build()
        for node in ast.walk(tree):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                continue
            value = node.value
            index = next((i for i, call in enumerate(calls) if call is value), None)
            if index is None and isinstance(value, (ast.Name, ast.Attribute)):
                index = names.get(ast.unparse(value))
            if index is None and isinstance(value, ast.Call):
                index = makers.get(ast.unparse(value.func).removeprefix("self."))
            if index is not None:
                target = ast.unparse(node.targets[0])
                if names.setdefault(target, index) != index:
                    raise Inconvertible(f"line {node.lineno}: {target} is one extension and then another")
    return names


def _aliases(tree: ast.Module, names: dict[str, int]) -> dict[str, tuple[int, str]]:
    """Every name bound once, to a function of an extension -> the extension's index and the function's name."""
    stores = Counter(ast.unparse(n) for n in ast.walk(tree) if isinstance(getattr(n, "ctx", None), ast.Store))
    stores.update(n.arg for n in ast.walk(tree) if isinstance(n, ast.arg))
    found: dict[str, tuple[int, str]] = {}
    for _ in range(3):  # f = ext.relu; self.op = f
        for node in ast.walk(tree):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                continue
            target, value = ast.unparse(node.targets[0]), node.value
            owner, _dot, last = ast.unparse(value).rpartition(".")
            known = found.get(ast.unparse(value)) if isinstance(value, (ast.Name, ast.Attribute)) else None
            if known is None and isinstance(value, ast.Attribute) and owner in names:
                known = names[owner], last
            if known is not None:
                if stores[target] > 1:
                    raise Inconvertible(f"line {node.lineno}: {target} is assigned more than once")
                found[target] = known
    return found


__all__ = ["ProgramError", "from_modelnew"]
