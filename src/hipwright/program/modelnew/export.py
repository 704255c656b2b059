"""Exports a program as a KernelBench `ModelNew` file. Torch-free: it writes text.

The file has two native sources, both built by `torch.utils.cpp_extension.load_inline`:
    binding source  C++ with torch's headers: takes tensors, scalars and the stream as int64, and checks them
    kernel source   the kernels and one `extern "C" int hipwright_launch_<kernel>(...)` each, without torch's headers
and a class ModelNew whose parameters are made by the task's own __init__ code (without its forward methods), and whose
forward is the plan, statement by statement. The hipcc build has not run on hardware here.
"""

from __future__ import annotations

import ast
import copy

from hipwright import syntax
from hipwright.errors import BadInput, ProgramError
from hipwright.program.language import FACTORIES, IMPORTS, is_self_path, library_name
from hipwright.program.modelnew.native_source import binding_source, kernel_source
from hipwright.program.parsed import Parsed
from hipwright.program.plan_statements import PlanStatements
from hipwright.records import Program
from hipwright.toolchain import device_headers

_PRIVATE = "_TaskModules"


def export(program: Program, parsed: Parsed, task_source: str) -> str:
    """The text of a ModelNew file for `task_source` (a task in the KernelBench form) with the program's chosen knobs.

    Raises BadInput when the task has no class Model, ProgramError when the program has a backward.
    """
    if parsed.has_backward:
        raise ProgramError(
            "a program with backward cannot be written as a ModelNew file", parsed.functions["backward"].lineno
        )
    task, init = _task_modules(task_source)
    kernels = [parsed.signatures[name] for name in parsed.launched]
    values = parsed.values(program.knobs)
    parts = [
        f'"""Written by hipwright from program {program.key}."""\n',
        _IMPORTS + _LOADER if kernels else _IMPORTS,
    ]
    if kernels:
        flags = ["-O3", *(f"-D{name}={value}" for name, value in parsed.defines(program.knobs).items())]
        parts += [
            f"HIP_SOURCE = {_literal(kernel_source(device_headers.inlined(parsed.hip), kernels))}\n",
            f"TORCH_SOURCE = {_literal(binding_source(kernels))}\n",
            _BUILD.format(
                name=f"hipwright_{program.key}",
                functions=[f"launch_{k.name}" for k in kernels],
                flags=flags,
            ),
        ]
    parts += [task, _HELPERS, _model_new(parsed, values, init)]
    text = "\n\n".join(part.strip("\n") for part in parts) + "\n"
    syntax.parse(text)  # the result must at least be Python
    return text


_IMPORTS = """import inspect
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
"""
_LOADER = "from torch.utils.cpp_extension import load_inline\n"

_BUILD = """_options = {{"no_implicit_headers": True}}  # no torch headers in the kernel source; old versions lack it
_options = {{k: v for k, v in _options.items() if k in inspect.signature(load_inline).parameters}}
try:
    _kernels = load_inline(
        name={name!r},
        cpp_sources=[TORCH_SOURCE],
        cuda_sources=[HIP_SOURCE],
        functions={functions!r},
        extra_cflags=["-O2"],
        extra_cuda_cflags={flags!r},
        **_options,
    )
except OSError:  # load_inline finds neither toolkit
    raise ImportError("its kernels are built on import, which takes nvcc or hipcc, and neither is here") from None
"""

_HELPERS = '''
def cdiv(a, b):
    """Integer division rounded up."""
    return -(-a // b)


def next_pow2(n):
    """The smallest power of two that is at least n."""
    return 1 if n <= 1 else 1 << (int(n) - 1).bit_length()


def _dims(value):
    """A grid or block as a list."""
    return [int(v) for v in value] if isinstance(value, (tuple, list)) else [int(value)]


def _stream():
    """The current stream's handle; 0 is the default stream."""
    return torch.cuda.current_stream().cuda_stream if torch.cuda.is_available() else 0
'''


def _literal(text: str) -> str:
    """A raw triple-quoted literal. Kernels come from such a literal, so one kind of quotes is free."""
    quotes = "'''" if "'''" not in text else '"""'
    if quotes in text:
        return repr(text)
    return f"r{quotes}\n{text}{quotes}"


# ---------------------------------------------------------------- the task's modules


def _task_modules(source: str) -> tuple[str, ast.FunctionDef | None]:
    """(the task's code without inputs and forward methods, Model renamed; Model.__init__)."""
    try:
        tree = syntax.parse(source)
    except SyntaxError as error:
        raise BadInput(f"the task is not Python: {error.msg} (line {error.lineno})") from None
    kept: list[ast.stmt] = []
    model: ast.ClassDef | None = None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs", "get_input_groups"):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.ClassDef):
            model = node if node.name == "Model" else model
            node.body = [n for n in node.body if not (isinstance(n, ast.FunctionDef) and n.name == "forward")] or [
                ast.Pass()
            ]
        if isinstance(node, (ast.Import, ast.ImportFrom)) and ast.unparse(node) in IMPORTS:
            continue
        kept.append(node)
    if model is None:
        raise BadInput("the task has no class Model")
    init = next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    for inner in ast.walk(ast.Module(body=kept, type_ignores=[])):
        if isinstance(inner, ast.Name) and inner.id == "Model":
            inner.id = _PRIVATE
    model.name = _PRIVATE
    lead = "# What the task's own code creates: parameters, buffers and attributes. Its forward methods are left out.\n"
    return lead + "\n\n".join(map(ast.unparse, kept)), init


def _model_new(parsed: Parsed, values: dict[str, int | bool], init: ast.FunctionDef | None) -> str:
    """The class: the task's attributes, the packed weights, the plan."""
    given = init.args if init else syntax.parse("def f(self): pass").body[0].args  # type: ignore[attr-defined]
    roots = sorted({path.split(".")[0] for path in parsed.self_paths} - {"training", "*"})
    lines = [
        "class ModelNew(nn.Module):",
        f"    def __init__({ast.unparse(given)}):",
        "        super().__init__()",
        f"        task = {_PRIVATE}({_passed_on(given)})",
        "        self.__dict__.update(task.__dict__)  # the same parameters under the same names",
        f"        for name in {roots!r}:",
        "            if not hasattr(self, name):  # class attributes and properties",
        "                setattr(self, name, getattr(task, name))",
    ]
    if parsed.has_prepare:
        lines += ["        self._packed_for = None", "", *_method(parsed, "prepare", values), "", *_PREPARED]
    return "\n".join([*lines, "", *_method(parsed, "forward", values)])


_PREPARED = (
    "    # Packed again when a tensor is written or replaced. A write through `.data` cannot be seen: call",
    "    # repack() after it.",
    "    def repack(self):",
    "        self._packed_for = None",
    "",
    "    def _prepared(self):",
    "        state = [(t._version, t.data_ptr()) for t in (*self.parameters(), *self.buffers())]",
    "        if state != self._packed_for:",
    "            self._packed, self._packed_for = self.prepare(), state",
    "        return self._packed",
)


def _passed_on(args: ast.arguments) -> str:
    plain = [a.arg for a in (*args.posonlyargs, *args.args)][1:]
    parts = [*plain, *([f"*{args.vararg.arg}"] if args.vararg else []), *(f"{a.arg}={a.arg}" for a in args.kwonlyargs)]
    return ", ".join([*parts, *([f"**{args.kwarg.arg}"] if args.kwarg else [])])


def _method(parsed: Parsed, name: str, values: dict[str, int | bool]) -> list[str]:
    """One function of the plan as a method, indented."""
    function = copy.deepcopy(parsed.functions[name])
    names = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    rewrite = _Rewrite(parsed, _fresh("device", names), _fresh("prepared", names))
    inputs = [a.arg for a in function.args.args][1:]
    body = [rewrite.visit(node) for node in function.body]
    head = [f"{n} = {v!r}" for n, v in values.items() if n in names]
    if rewrite.uses_device:
        tensors = ", ".join([*inputs, "*self.parameters()", "*self.buffers()"])
        head.append(f"{rewrite.device} = next((t.device for t in ({tensors}) if isinstance(t, torch.Tensor)), None)")
    if rewrite.uses_prepared:
        head.append(f"{rewrite.prepared} = self._prepared()")
    function.body = [*(node for line in head for node in syntax.parse(line).body), *body]
    function.returns = None
    for arg in function.args.args:
        arg.annotation = None
    text = ast.unparse(ast.fix_missing_locations(function))
    return ["    @torch.no_grad()", *("    " + line if line else "" for line in text.split("\n"))]


def _fresh(name: str, used: set[str]) -> str:
    while name in used:
        name += "_"
    return name


class _Rewrite(PlanStatements):
    """Rewrites a plan as Python: launches, prepared values, augmented assignment, the device of new tensors."""

    def __init__(self, parsed: Parsed, device: str, prepared: str) -> None:
        self.parsed, self.device, self.prepared = parsed, device, prepared
        self.uses_device = self.uses_prepared = False

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """self.prepared.w -> prepared["w"]; self.prepared itself -> prepared."""
        if isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr == "prepared":
            if not self.parsed.has_prepare:
                return node
            self.uses_prepared = True
            return ast.Name(self.prepared, ast.Load())
        inner = node.value
        at_prepared = is_self_path(inner) and isinstance(inner, ast.Attribute) and inner.attr == "prepared"
        if at_prepared and self.parsed.has_prepare and isinstance(inner.value, ast.Name):  # type: ignore[attr-defined]
            self.uses_prepared = True
            return ast.Subscript(ast.Name(self.prepared, ast.Load()), ast.Constant(node.attr), ast.Load())
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """self.net["block1-0"] -> getattr(self.net, "block1-0")."""
        self.generic_visit(node)
        key = node.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and is_self_path(node.value):
            return ast.Call(ast.Name("getattr", ast.Load()), [node.value, key], [])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """kernel[grid, block](...) -> _kernels.launch_kernel(...); torch.zeros(n) -> torch.zeros(n, device=...)."""
        self.generic_visit(node)
        func = node.func
        if isinstance(func, ast.Subscript) and isinstance(func.value, ast.Name) and isinstance(func.slice, ast.Tuple):
            return self.launch(node, func.value.id, func.slice.elts)
        library = library_name(func)
        makes = library is not None and library[0] == "torch" and library[1][0] in FACTORIES
        if makes and all(k.arg != "device" for k in node.keywords):
            self.uses_device = True
            node.keywords.append(ast.keyword("device", ast.Name(self.device, ast.Load())))
        return node

    def launch(self, node: ast.Call, kernel: str, shape: list[ast.expr]) -> ast.Call:
        """The call of the binding source's launcher."""

        def name(text: str) -> ast.expr:
            return ast.Name(text, ast.Load())

        dims: list[ast.expr] = [ast.Call(name("_dims"), [part], []) for part in shape[:2]]
        lds = shape[2] if len(shape) == 3 else ast.Constant(0)
        function = ast.Attribute(name("_kernels"), f"launch_{kernel}", ast.Load())
        return ast.Call(function, [*dims, lds, ast.Call(name("_stream"), [], []), *node.args], [])
