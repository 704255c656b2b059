"""ModelNew.forward -> the statements of a plan. Calls of the file's extensions are written out by `cpp_host`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hipwright.program.cpp_host import Host, parameters
from hipwright.program.cpp_kinds import Val
from hipwright.program.cpp_text import Inconvertible, Item
from hipwright.program.language import RESERVED
from hipwright.program.modelnew_state import Attributes
from hipwright.program.plan_writer import Writer

_CONV = (
    "F.{name}({{x}}, self.{{n}}.weight, self.{{n}}.bias, self.{{n}}.stride, self.{{n}}.padding, self.{{n}}.dilation, "
    "self.{{n}}.groups)"
)
_FUNCTIONAL = {
    "Linear": "F.linear({x}, self.{n}.weight, self.{n}.bias)",
    **{f"Conv{d}d": _CONV.format(name=f"conv{d}d") for d in (1, 2, 3)},
    **{f"ConvTranspose{d}d": f"F.conv_transpose{d}d({{x}}, self.{{n}}.weight, self.{{n}}.bias, self.{{n}}.stride, "
       "self.{n}.padding, self.{n}.output_padding, self.{n}.groups, self.{n}.dilation)" for d in (1, 2, 3)},
    "LayerNorm": "F.layer_norm({x}, self.{n}.normalized_shape, self.{n}.weight, self.{n}.bias, self.{n}.eps)",
    "GroupNorm": "F.group_norm({x}, self.{n}.num_groups, self.{n}.weight, self.{n}.bias, self.{n}.eps)",
    "Embedding": "F.embedding({x}, self.{n}.weight)",
    "ReLU": "F.relu({x})", "Sigmoid": "torch.sigmoid({x})", "Tanh": "torch.tanh({x})", "SiLU": "F.silu({x})",
    "GELU": "F.gelu({x}, approximate=self.{n}.approximate)", "Softplus": "F.softplus({x})", "Identity": "{x}",
    "Mish": "F.mish({x})", "Hardswish": "F.hardswish({x})", "Softmax": "torch.softmax({x}, self.{n}.dim)",
    "LeakyReLU": "F.leaky_relu({x}, self.{n}.negative_slope)", "ELU": "F.elu({x}, self.{n}.alpha)",
    **{f"MaxPool{d}d": f"F.max_pool{d}d({{x}}, self.{{n}}.kernel_size, self.{{n}}.stride, self.{{n}}.padding, "
       "self.{n}.dilation, self.{n}.ceil_mode)" for d in (1, 2, 3)},
    "AvgPool2d": "F.avg_pool2d({x}, self.{n}.kernel_size, self.{n}.stride, self.{n}.padding, self.{n}.ceil_mode)",
    "AdaptiveAvgPool2d": "F.adaptive_avg_pool2d({x}, self.{n}.output_size)",
    "Flatten": "torch.flatten({x}, self.{n}.start_dim, self.{n}.end_dim)",
}  # fmt: skip
_DROPPED_METHODS = ("cuda", "detach", "requires_grad_", "clone_if_needed")
_DEPTH = 6


@dataclass
class Extensions:
    """names: "ext" or "self.ext" -> index; functions: for each, exported name -> host function."""

    names: dict[str, int]
    functions: list[dict[str, Item]]
    hosts: list[Host]


class Forward:
    """Converts one forward method, statement by statement."""

    def __init__(
        self, tree: ast.Module, owner: ast.ClassDef, attributes: Attributes, extensions: Extensions, writer: Writer,
        constants: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.attributes = attributes
        self.extensions = extensions
        self.writer = writer
        self.constants = {k: v for k, v in constants.items() if isinstance(v, (bool, int, float, str, type(None)))}
        self.methods = {n.name: n for n in owner.body if isinstance(n, ast.FunctionDef)}
        self.functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        self.classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
        self.depth = 0

    def convert(self, function: ast.FunctionDef) -> str:
        """The text of `def forward(self, ...)`."""
        args = copy.deepcopy(function.args)
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs:
            raise Inconvertible("forward takes *args, **kwargs or keyword-only parameters")
        for arg in args.args:
            arg.annotation = None
        names = {a.arg: a.arg for a in args.args}
        self.block(function.body, names, self.write_return)
        return f"def forward({ast.unparse(args)}):\n" + "\n".join(self.writer.lines)

    def write_return(self, value: str) -> None:
        """A return of forward itself."""
        self.writer.line(f"return {value}")

    # ------------------------------------------------------------ statements

    def block(self, body: Sequence[ast.stmt], names: dict[str, str], on_return: Callable[[str], None]) -> None:
        """Statements in order. names: Python local -> plan local."""
        for index, node in enumerate(body):
            match node:
                case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Import() | ast.ImportFrom():
                    continue
                case ast.Return():
                    on_return("None" if node.value is None else self.text(node.value, names))
                    return
                case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)]) if "no_grad" in ast.unparse(call):
                    self.block([*node.body, *body[index + 1 :]], names, on_return)
                    return
                case ast.If():
                    if self.branch(node, names, on_return):
                        return
                case ast.For(orelse=[]):
                    self.loop(node, names, on_return)
                case _:
                    self.statement(node, names)

    def statement(self, node: ast.stmt, names: dict[str, str]) -> None:
        """Assignments, asserts and calls for their effect."""
        match node:
            case ast.Assign(targets=[target]):
                value = self.text(node.value, names)
                self.writer.line(f"{self.target(target, names)} = {value}")
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as given):
                value = self.text(given, names)
                self.writer.line(f"{self.target(target, names)} = {value}")
            case ast.AugAssign(target=ast.Name() as target):
                whole = ast.BinOp(ast.Name(target.id, ast.Load()), node.op, node.value)
                value = self.text(ast.copy_location(whole, node), names)
                self.writer.line(f"{self.target(target, names)} = {value}")
            case ast.Assert():
                test = self.text(node.test, names)
                if test != "True":
                    message = node.msg.value if isinstance(node.msg, ast.Constant) else "an assertion of the file"
                    self.writer.line(f"assert {test}, {str(message)!r}")
            case ast.Expr(value=ast.Call() as call):
                before = len(self.writer.lines)
                text = self.text(call, names)
                if len(self.writer.lines) == before and not text.isidentifier() and text != "None":
                    raise Inconvertible(f"line {node.lineno}: a call whose value is not used")
            case _:
                raise Inconvertible(f"line {node.lineno}: {type(node).__name__} in forward")

    def target(self, node: ast.expr, names: dict[str, str]) -> str:
        """An assignment target, names renamed."""
        if isinstance(node, ast.Name):
            names.setdefault(node.id, node.id if self.depth == 0 else self.writer.fresh(node.id))
            self.writer.used.add(names[node.id])
            return names[node.id]
        if isinstance(node, (ast.Tuple, ast.List)):
            return ", ".join(self.target(item, names) for item in node.elts)
        raise Inconvertible(f"line {node.lineno}: an assignment to {ast.unparse(node)}")

    def branch(self, node: ast.If, names: dict[str, str], on_return: Callable[[str], None]) -> bool:
        """An if on shapes, dtypes and scalars; decided now where it is known. True when that branch returns."""
        test = self.text(node.test, names)
        if test in ("True", "False"):
            taken = node.body if test == "True" else node.orelse
            self.block(taken, names, on_return)
            return bool(taken) and isinstance(taken[-1], ast.Return)
        if self.depth and any(isinstance(n, ast.Return) for n in ast.walk(node)):
            raise Inconvertible(f"line {node.lineno}: a return inside an if of a helper")
        for lead, body in ((f"if {test}:", node.body), ("else:", node.orelse)):
            if lead == "else:" and not body:
                continue
            self.writer.line(lead)
            self.indented(lambda part=body: self.block(part, names, on_return))  # type: ignore[misc]
        return False

    def loop(self, node: ast.For, names: dict[str, str], on_return: Callable[[str], None]) -> None:
        """A for over host values."""
        iterated = self.text(node.iter, names)
        self.writer.line(f"for {self.target(node.target, names)} in {iterated}:")
        self.indented(lambda: self.block(node.body, names, on_return))

    def indented(self, write: Callable[[], None]) -> None:
        """Write with one more level."""
        indent, start = self.writer.indent, len(self.writer.lines)
        self.writer.indent += "    "
        write()
        if len(self.writer.lines) == start:
            self.writer.line("pass")
        self.writer.indent = indent

    # ------------------------------------------------------------ expressions

    def text(self, node: ast.expr, names: dict[str, str]) -> str:
        """An expression as the plan has it; what must happen before it is written first."""
        made = _Expression(self, names).visit(copy.deepcopy(node))
        return ast.unparse(ast.fix_missing_locations(made))

    def local(self, text: str) -> str:
        """A name for a value that is used more than once."""
        if text.isidentifier() or text.replace(".", "").isalnum():
            return text
        found = self.writer.fresh("arg")
        self.writer.line(f"{found} = {text}")
        return found

    def extension_call(self, index: int, name: str, args: list[str], keywords: dict[str, str]) -> str:
        """Write out a call of a host function; its value's text."""
        item = self.extensions.functions[index].get(name)
        if item is None:
            raise Inconvertible(f"the extension has no function {name} with a body")
        order = [n for _, n in parameters(item.head)]
        given = [Val("any", self.local(a)) for a in args]
        for param in order[len(args) :]:
            if param in keywords:
                given += [Val("any", self.local(keywords[param]))]
        host = self.extensions.hosts[index]
        value = host.run(item, [_literal_kind(v) for v in given])
        return value.text

    def own_call(self, function: ast.FunctionDef, args: list[str], keywords: dict[str, str], skip: int) -> str:
        """Write out a call of a helper in the file, whose only return is its last statement."""
        if self.depth >= _DEPTH:
            raise Inconvertible(f"{function.name} calls itself")
        params = [a.arg for a in function.args.args][skip:]
        if function.args.vararg or function.args.kwarg or len(args) > len(params):
            raise Inconvertible(f"{function.name} takes other arguments")
        names = dict(zip(params, map(self.local, args), strict=False))
        defaults = dict(zip(reversed(params), (ast.unparse(d) for d in reversed(function.args.defaults)), strict=False))
        for param in params[len(args) :]:
            if param not in keywords and param not in defaults:
                raise Inconvertible(f"{function.name} is called without {param}")
            names[param] = self.local(keywords.get(param, defaults.get(param, "")))
        returned: list[str] = []
        self.depth += 1
        self.block([n for n in function.body if not _is_ctx(n)], names, returned.append)
        self.depth -= 1
        return returned[0] if returned else "None"


class _Expression(ast.NodeTransformer):
    """One expression of forward: names, attributes and calls as the plan has them."""

    def __init__(self, forward: Forward, names: dict[str, str]) -> None:
        self.forward = forward
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Locals by their plan names, constants of the file by value."""
        if node.id in self.names:
            return _parsed(self.names[node.id])
        if node.id in self.forward.constants and node.id not in RESERVED:
            return ast.Constant(self.forward.constants[node.id])
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """self.x: a constant of __init__, or a parameter under the reference's path; x.is_cuda is true."""
        path = _self_path(node)
        known = self.forward.attributes
        if path:
            root = path.split(".")[0]
            if path in known.constants:
                return _parsed(repr(_tupled(known.constants[path])))
            if path in known.renamed:
                return _parsed("self." + known.renamed[path])
            if f"self.{root}" in self.forward.extensions.names:
                raise Inconvertible(f"line {node.lineno}: an extension is used as a value")
            return node if path.split(".")[-1] != "data" else _parsed("self." + path.rpartition(".")[0])
        if node.attr in ("is_cuda", "is_hip"):
            return ast.Constant(True)
        if node.attr == "data":
            return self.visited(node.value)
        visited: ast.AST = self.generic_visit(node)
        return visited

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Both sides must be expressions: nothing may be written before the choice."""
        return self.unwritten(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """As for `a if b else c`; constants are folded."""
        made = self.unwritten(node)
        assert isinstance(made, ast.BoolOp)
        stops = isinstance(made.op, ast.Or)
        left = [v for v in made.values if not (isinstance(v, ast.Constant) and bool(v.value) is not stops)]
        decided = [v for v in left if isinstance(v, ast.Constant)]
        if decided or not left:
            return ast.Constant(stops if decided else not stops)
        return left[0] if len(left) == 1 else ast.BoolOp(made.op, left)

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        """Its loop variable is a name of its own."""
        bound = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        outer, self.names = self.names, {**self.names, **{b: b for b in bound}}
        made = self.unwritten(node)
        self.names = outer
        return made

    def unwritten(self, node: ast.AST) -> ast.AST:
        """Visit, refusing what would have to be written before."""
        before = len(self.forward.writer.lines)
        made = self.generic_visit(node)
        if len(self.forward.writer.lines) != before:
            raise Inconvertible("an extension is called inside a condition or a comprehension")
        return made

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Extensions, modules, helpers; what only moves tensors to the device is dropped."""
        f, func = self.forward, node.func
        name = ast.unparse(func)
        owner, _, last = name.rpartition(".")
        if any(isinstance(a, ast.Starred) for a in node.args) and owner in f.extensions.names:
            raise Inconvertible(f"line {node.lineno}: *arguments of an extension")
        if owner in f.extensions.names:
            return _parsed(f.extension_call(f.extensions.names[owner], last, *self.given(node)))
        if name in f.functions and name not in ("cdiv", "next_pow2"):
            return _parsed(f.own_call(f.functions[name], *self.given(node), skip=0))
        if owner == "self" and last in f.methods:
            return _parsed(f.own_call(f.methods[last], *self.given(node), skip=1))
        if last == "apply" and owner in f.classes:
            function = next(
                (n for n in f.classes[owner].body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None
            )
            if function is not None:
                return _parsed(f.own_call(function, *self.given(node), skip=1))
        if owner == "self" and last in f.attributes.modules:
            return self.module(last, node)
        if isinstance(func, ast.Attribute) and last in _DROPPED_METHODS:
            return self.visited(func.value)
        if (
            isinstance(func, ast.Attribute)
            and last == "to"
            and len(node.args) == 1
            and "device" in ast.unparse(node.args[0])
        ):
            return self.visited(func.value)
        made = self.generic_visit(node)
        assert isinstance(made, ast.Call)
        made.keywords = [k for k in made.keywords if k.arg != "device"]
        return made

    def visited(self, node: ast.expr) -> ast.AST:
        """The expression in place of what is dropped around it."""
        found: ast.AST = self.visit(node)
        return found

    def given(self, node: ast.Call) -> tuple[list[str], dict[str, str]]:
        """The arguments as text."""
        args = [ast.unparse(self.visit(a)) for a in node.args]
        return args, {k.arg: ast.unparse(self.visit(k.value)) for k in node.keywords if k.arg}

    def module(self, name: str, node: ast.Call) -> ast.AST:
        """self.conv(x) -> F.conv2d(x, self.conv.weight, ...)."""
        f = self.forward
        kind, _ = f.attributes.modules[name]
        if kind not in _FUNCTIONAL or len(node.args) != 1 or node.keywords:
            raise Inconvertible(f"line {node.lineno}: self.{name}(...), a {kind}")
        argument = f.local(ast.unparse(self.visit(node.args[0])))
        text = _FUNCTIONAL[kind].format(x=argument, n=name)
        for own, given in f.attributes.renamed.items():
            text = text.replace(f"self.{own},", f"self.{given},").replace(f"self.{own})", f"self.{given})")
            if own.startswith(f"{name}."):
                text = text.replace(f"self.{name}.", f"self.{given.rpartition('.')[0]}.")
        return _parsed(text)


def _literal_kind(value: Val) -> Val:
    """An argument of a call, with its kind where the text tells."""
    if value.text == "None":
        return Val("none", "None")
    return value


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, (list, tuple)) else value


def _parsed(text: str) -> ast.expr:
    return ast.parse(f"({text})", mode="eval").body


def _self_path(node: ast.expr) -> str:
    """ "a.b" for self.a.b, else ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed(parts)) if isinstance(node, ast.Name) and node.id == "self" else ""


def _is_ctx(node: ast.stmt) -> bool:
    """What an autograd function notes for its backward."""
    return ast.unparse(node).startswith("ctx.")
