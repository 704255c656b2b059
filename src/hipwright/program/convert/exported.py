"""Recovers the program from a file that `modelnew.export` wrote; the chosen knob values become the only choices."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from hipwright.errors import ProgramError
from hipwright.program.convert.cpp_text import Inconvertible
from hipwright.program.convert.forward_state import class_named, method
from hipwright.program.modelnew.extensions import Extension
from hipwright.program.modelnew.native_source import KERNEL_SOURCE, binding_source, kernel_source
from hipwright.program.signature import parse_signatures
from hipwright.records import Program
from hipwright.toolchain import device_headers


def exported_program(tree: ast.Module, extensions: Sequence[Extension]) -> Program | None:
    """The program, or None when the file is not an unchanged export: both native sources must match to the letter."""
    if len(extensions) != 1 or len(extensions[0].cpp) != 1 or len(extensions[0].cuda) != 1:
        return None
    hip = KERNEL_SOURCE.match(extensions[0].cuda[0])
    if hip is None:
        return None
    try:
        signatures = parse_signatures(hip["hip"]).signatures
    except ProgramError:
        return None
    names = re.findall(r"hipwright_launch_(\w+)\(", hip["launchers"])
    if not set(names) <= set(signatures):
        return None
    kernels = [signatures[name] for name in names]
    same = (kernel_source(hip["hip"], kernels), binding_source(kernels)) == tuple(
        text.strip("\n") + "\n" for text in (extensions[0].cuda[0], extensions[0].cpp[0])
    )
    return Program(text=_program(tree, device_headers.shortened(hip["hip"]), extensions[0])) if same else None


def _program(tree: ast.Module, hip: str, extension: Extension) -> str:
    owner = class_named(tree, "ModelNew")
    assert owner is not None
    defines = dict(f[2:].split("=") for f in extension.cuda_cflags if f.startswith("-D") and "=" in f)
    functions, values = [], dict(defines)
    for name in ("prepare", "forward"):
        found = method(owner, name)
        if found is not None:
            back = _PlanRestorer()
            text, constants = back.function(found)
            functions.append(text)
            values = {**constants, **values}
    lines = []
    for name, value in values.items():
        lines.append(f"{name} = knob({value}, choices=[{value}])" if name in defines else f"{name} = {value}")
    quotes = "'''" if "'''" not in hip else '"""'
    head = "\n".join([f"HIP = r{quotes}\n{hip}\n{quotes}", *lines])
    return head + "\n\n\n" + "\n\n\n".join(functions) + "\n"


class _PlanRestorer(ast.NodeTransformer):
    """Undoes the rewriting of `modelnew.export`."""

    def __init__(self) -> None:
        self.device = self.prepared = ""

    def function(self, node: ast.FunctionDef) -> tuple[str, dict[str, str]]:
        """(text of the plan's function, constants that it defined at its start)."""
        head: dict[str, str] = {}
        body: list[ast.stmt] = []
        for item in node.body:
            text = ast.unparse(item)
            if re.match(r"device_* = next\(\(t\.device for t in \(", text):
                self.device = text.split(" ")[0]
            elif re.fullmatch(r"prepared_* = self\._prepared\(\)", text):
                self.prepared = text.split(" ")[0]
            elif not body and (match := re.fullmatch(r"([A-Z]\w*) = (-?\d+|True|False)", text)):
                head[match[1]] = match[2]
            else:
                body.append(item)
        node.body = [self.visit(item) for item in body]
        node.decorator_list = []
        return ast.unparse(ast.fix_missing_locations(node)), head

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """prepared["w"] -> self.prepared.w."""
        if isinstance(node.value, ast.Name) and node.value.id == self.prepared and isinstance(node.slice, ast.Constant):
            owner = ast.Attribute(ast.Name("self", ast.Load()), "prepared", ast.Load())
            return ast.Attribute(owner, str(node.slice.value), ast.Load())
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """prepared -> self.prepared."""
        if self.prepared and node.id == self.prepared:
            return ast.Attribute(ast.Name("self", ast.Load()), "prepared", ast.Load())
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """_kernels.launch_k(_dims(grid), _dims(block), lds, _stream(), ...) -> k[grid, block, lds](...)."""
        self.generic_visit(node)
        node.keywords = [k for k in node.keywords if not (k.arg == "device" and ast.unparse(k.value) == self.device)]
        name = ast.unparse(node.func)
        if not name.startswith("_kernels.launch_"):
            return node
        dims = [part.args[0] for part in node.args[:2] if isinstance(part, ast.Call)]
        if len(dims) != 2:
            raise Inconvertible("a launch in an unknown form")
        lds = node.args[2]
        shape = dims if isinstance(lds, ast.Constant) and lds.value == 0 else [*dims, lds]
        kernel = ast.Name(name.removeprefix("_kernels.launch_"), ast.Load())
        return ast.Call(ast.Subscript(kernel, ast.Tuple(shape, ast.Load()), ast.Load()), node.args[4:], [])
