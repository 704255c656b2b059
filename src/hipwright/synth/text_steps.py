"""The steps of a task read from its text alone: nothing is executed or imported, and any text is accepted.

The forward is followed along its data: `x.relu()`, `F.relu(x)`, `torch.relu(x)` and `nn.ReLU()(x)` are the same step, a
local name or an attribute stands for the value assigned to it, and submodules, helper functions and nn.Sequential are
followed. For a text without a readable Model the steps are the names that it calls, alone and in consecutive pairs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hipwright import syntax
from hipwright.synth.graphs.hash import chains, counted
from hipwright.synth.text_names import (
    BINARY,
    COMPARED,
    NOT_TENSORS,
    SETTINGS,
    STATE,
    STEPLESS,
    canonical_name,
    is_torch_name,
    last_name,
    mode_suffix,
)

_MAX_DEPTH = 12  # of calls within calls


@dataclass(frozen=True, eq=False)
class OperatorResult:
    """The result of one operator, an input ("in") or a parameter ("state"). above: the results it is computed from."""

    name: str
    above: tuple[OperatorResult, ...] = ()


Results = tuple[OperatorResult, ...]  # the tensors in an expression's value; () for a value without tensors


@dataclass
class NameScope:
    """What the names of one function mean. fields: of self; modules: the expressions that construct submodules."""

    names: dict[str, Results] = field(default_factory=dict)
    fields: dict[str, Results] = field(default_factory=dict)
    modules: dict[str, ast.expr] = field(default_factory=dict)
    methods: dict[str, ast.FunctionDef] = field(default_factory=dict)


def text_steps(source: str) -> frozenset[str]:
    """Operators and their chains of two and three along the data, each occurrence with its number."""
    try:
        tree = syntax.parse(source)
        steps = _ForwardReader(tree).steps()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        steps = []
    found = [c for s in steps for c in chains(s.name, ((a.name, [b.name for b in a.above]) for a in s.above))]
    return counted(found) if found else _called_names(source)


def _called_names(source: str) -> frozenset[str]:
    """The steps of a text without a readable Model: the names that it calls, alone and in consecutive pairs."""
    code = re.sub(r"#[^\n]*", "", re.sub(r'("""|\'\'\').*?\1', "", source, flags=re.DOTALL))
    called = [canonical_name(word) for word in re.findall(r"(?<!def )(?<!class )\b([A-Za-z_]\w*)[ \t]*\(", code)]
    kept = [word for word in called if word not in STEPLESS and word not in NOT_TENSORS]
    return counted([*kept, *(f"{b}<{a}" for a, b in pairwise(kept))])


class _ForwardReader:
    """Follows the forward of the class Model, else of the last class with a forward."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions = {f.name: f for f in tree.body if isinstance(f, ast.FunctionDef)}
        self.classes = {c.name: c for c in tree.body if isinstance(c, ast.ClassDef)}
        self.found: list[OperatorResult] = []
        self.depth = 0

    def steps(self) -> list[OperatorResult]:
        """All steps in reading order, also those that no output depends on."""
        having = [c for c in self.classes.values() if _method(c, "forward") is not None]
        chosen = next((c for c in having if c.name == "Model"), having[-1] if having else None)
        if chosen is not None:
            forward = _method(chosen, "forward")
            assert forward is not None
            self._inside(self._scope(chosen), forward, [(OperatorResult("in"),) for _ in _parameters(forward)])
        return self.found

    # ---------------------------------------------------------------- classes and functions

    def _scope(self, cls: ast.ClassDef) -> NameScope:
        scope = NameScope(methods={f.name: f for f in cls.body if isinstance(f, ast.FunctionDef)})
        made = scope.methods.get("__init__")
        for node in ast.walk(made) if made is not None else ():
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._field(scope, target, node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._field(scope, node.target, node.value)
            elif isinstance(node, ast.Call) and canonical_name(last_name(node.func)) in STATE:
                for name in (a.value for a in node.args[:1] if isinstance(a, ast.Constant)):
                    scope.fields[str(name)] = (OperatorResult("state"),)
        return scope

    def _field(self, scope: NameScope, target: ast.expr, value: ast.expr) -> None:
        if not (isinstance(target, ast.Attribute) and last_name(target.value) == "self"):
            if isinstance(target, ast.Name):
                scope.modules.setdefault(
                    f"local {target.id}", value
                )  # layers = [...]; self.net = nn.Sequential(*layers)
            return
        if isinstance(value, ast.Name):
            value = scope.modules.get(f"local {value.id}", value)
        called = canonical_name(last_name(value.func)) if isinstance(value, ast.Call) else ""
        if called in STATE:
            scope.fields[target.attr] = (OperatorResult("state"),)
        elif called:
            scope.modules[target.attr] = value

    def _inside(self, scope: NameScope, function: ast.FunctionDef, arguments: Sequence[Results]) -> Results:
        """The results that a function returns for its arguments; () below _MAX_DEPTH nested calls."""
        if self.depth > _MAX_DEPTH:
            return ()
        self.depth += 1
        inner = NameScope(
            dict(zip(_parameters(function), arguments, strict=False)), scope.fields, scope.modules, scope.methods
        )
        returned = self._block(inner, function.body)
        self.depth -= 1
        return returned

    def _block(self, scope: NameScope, body: Iterable[ast.stmt]) -> Results:
        returned: Results = ()
        for statement in body:
            returned += self._statement(scope, statement)
        return returned

    def _statement(self, scope: NameScope, node: ast.stmt) -> Results:
        match node:
            case ast.Return(value=ast.expr() as value):
                return self.read(scope, value)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(scope, target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(scope, target, value)
            case ast.AugAssign(target=target, op=op, value=value):
                results = self._step(BINARY.get(type(op), "op"), [self.read(scope, target), self.read(scope, value)])
                self._assign(scope, target, results)
            case ast.Expr(value=value):
                self.read(scope, value)
            case ast.If(body=body, orelse=orelse):
                return self._block(scope, body) + self._block(scope, orelse)
            case ast.For(target=target, iter=items, body=body):
                return self._loop(scope, target, items, body)
            case ast.With(body=body) | ast.While(body=body):
                return self._block(scope, body)
        return ()

    def _loop(self, scope: NameScope, target: ast.expr, items: ast.expr, body: list[ast.stmt]) -> Results:
        """Follow the body once for each module of a readable list of modules, else once."""
        returned: Results = ()
        modules: list[ast.expr | None] = list(self._listed(scope, items))
        for module in modules or [None]:
            if module is None:
                self._assign(scope, target, self.read(scope, items))
            elif isinstance(target, ast.Name):
                scope.modules[f"local {target.id}"] = module
            returned += self._block(scope, body)
        return returned

    def _bind(self, scope: NameScope, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            results = [self.read(scope, item) for item in value.elts]
            for item, value_of_item in zip(target.elts, results, strict=False):
                self._assign(scope, item, value_of_item)
        else:
            self._assign(scope, target, self.read(scope, value))

    def _assign(self, scope: NameScope, target: ast.expr, results: Results) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = results
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                self._assign(scope, item, results)
        elif isinstance(target, ast.Starred):
            self._assign(scope, target.value, results)
        elif isinstance(target, ast.Subscript):
            self._assign(scope, target.value, self._step("index_put", [self.read(scope, target.value), results]))

    # ---------------------------------------------------------------- expressions

    def read(self, scope: NameScope, node: ast.expr) -> Results:
        """The results in an expression's value; its steps are added to `found`."""
        match node:
            case ast.Name(id=name):
                return scope.names.get(name, ())
            case ast.Call():
                return self._call(scope, node)
            case ast.BinOp(left=left, op=op, right=right):
                return self._step(BINARY.get(type(op), "op"), [self.read(scope, left), self.read(scope, right)])
            case ast.UnaryOp(op=op, operand=inner):
                return self._step("neg" if isinstance(op, ast.USub) else "not", [self.read(scope, inner)])
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._step(COMPARED.get(type(ops[0]), "is"), [self.read(scope, e) for e in (left, *others)])
            case ast.Attribute():
                return self._attribute(scope, node)
            case ast.Subscript(value=value, slice=index):
                results, at = self.read(scope, value), self.read(scope, index)
                return self._step("index", [results, at]) if at else results
            case ast.NamedExpr(target=target, value=value):
                self._assign(scope, target, results := self.read(scope, value))
                return results
            case ast.Lambda():
                return ()
        return tuple(s for child in ast.iter_child_nodes(node) for s in self._child(scope, child))

    def _child(self, scope: NameScope, node: ast.AST) -> Results:
        if isinstance(node, ast.comprehension):
            self._assign(scope, node.target, self.read(scope, node.iter))
            return ()
        return self.read(scope, node) if isinstance(node, ast.expr) else ()

    def _attribute(self, scope: NameScope, node: ast.Attribute) -> Results:
        if last_name(node.value) == "self" and isinstance(node.value, ast.Name):
            return scope.fields.get(node.attr, ())
        if node.attr in ("weight", "bias", "running_mean", "running_var"):
            return (OperatorResult("state"),)
        return self.read(scope, node.value) if node.attr in ("T", "mT", "H", "data", "values", "indices") else ()

    def _step(self, name: str, operands: Iterable[Results]) -> Results:
        """Add a step and return its result; () when no operand is a tensor. Parameters are not among `above`."""
        results = [step for operand in operands for step in operand]
        if not results:
            return ()
        above = {id(step): step for step in results if step.name != "state"}
        self.found.append(made := OperatorResult(name, tuple(above.values())))
        return (made,)

    def _call(self, scope: NameScope, node: ast.Call) -> Results:
        function, name = node.func, canonical_name(last_name(node.func))
        if (module := self._module(scope, function)) is not None:
            return self._apply(scope, module, [self.read(scope, a) for a in node.args])
        on: list[Results] = []
        if isinstance(function, ast.Attribute) and not is_torch_name(function.value):
            on = [self.read(scope, function.value)]
            if isinstance(function.value, ast.Name) and function.value.id == "self" and name:
                inner = scope.methods.get(function.attr)
                return self._inside(scope, inner, self._arguments(scope, node)) if inner else ()
        given = self._arguments(scope, node)
        if isinstance(function, ast.Name) and function.id in self.functions:
            return self._inside(NameScope(), self.functions[function.id], given)
        if name in NOT_TENSORS:
            return ()
        if name in STEPLESS:
            return tuple(step for results in (*on, *given) for step in results)
        if name == "linear":
            return self._step("add", [self._step("matmul", given)])
        return self._step(name + mode_suffix(node), [*on, *given])

    def _arguments(self, scope: NameScope, node: ast.Call) -> list[Results]:
        return [self.read(scope, a) for a in (*node.args, *(k.value for k in node.keywords))]

    # ---------------------------------------------------------------- modules

    def _module(self, scope: NameScope, function: ast.expr) -> ast.expr | None:
        """The expression that constructs the called module; None where no module is called."""
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self":
            return scope.modules.get(function.attr)
        if isinstance(function, ast.Name):
            return scope.modules.get(f"local {function.id}")
        if isinstance(function, ast.Subscript):
            listed = list(self._listed(scope, function.value))
            at = function.slice.value if isinstance(function.slice, ast.Constant) else 0
            return listed[at] if isinstance(at, int) and -len(listed) <= at < len(listed) else None
        return function if isinstance(function, ast.Call) else None  # nn.ReLU()(x)

    def _listed(self, scope: NameScope, node: ast.expr) -> Iterator[ast.expr]:
        """The constructor expressions of the modules of a ModuleList or Sequential."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            node = scope.modules.get(node.attr, node)
        if isinstance(node, ast.Call) and canonical_name(last_name(node.func)) in ("sequential", "module_list"):
            yield from self._parts(scope, node.args)

    def _parts(self, scope: NameScope, items: Iterable[ast.expr]) -> Iterator[ast.expr]:
        for item in items:
            if isinstance(item, ast.Starred):
                item = item.value
            if isinstance(item, ast.Name):
                item = scope.modules.get(f"local {item.id}", item)
            if isinstance(item, (ast.List, ast.Tuple)):
                yield from self._parts(scope, item.elts)
            elif isinstance(item, ast.Dict):
                yield from self._parts(scope, item.values)
            elif isinstance(item, ast.Call) and last_name(item.func) == "OrderedDict":
                yield from (pair.elts[1] for pair in _pairs(item))
            else:
                yield item

    def _apply(self, scope: NameScope, module: ast.expr, given: list[Results]) -> Results:
        """The results of a module for its arguments."""
        while isinstance(module, ast.Call) and isinstance(made := module.func, ast.Attribute) and made.attr in SETTINGS:
            module = made.value  # nn.BatchNorm2d(8).eval()
        name = last_name(module.func) if isinstance(module, ast.Call) else last_name(module)
        if name in self.classes:
            forward = _method(self.classes[name], "forward")
            return self._inside(self._scope(self.classes[name]), forward, given) if forward is not None else ()
        kind = canonical_name(name)
        if kind == "sequential":
            results = given[0] if given else ()
            for part in self._listed(scope, module):
                results = self._apply(scope, part, [results])
            return results
        if kind in STEPLESS:
            return given[0] if given else ()
        if kind == "linear":
            return self._step("add", [self._step("matmul", given)])
        return self._step(kind + mode_suffix(module), given)


def _pairs(call: ast.Call) -> Iterator[ast.Tuple]:
    for node in ast.walk(call):
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            yield node


def _method(cls: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((f for f in cls.body if isinstance(f, ast.FunctionDef) and f.name == name), None)


def _parameters(function: ast.FunctionDef) -> list[str]:
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    rest = [function.args.vararg] if function.args.vararg else []
    return [a.arg for a in (*given, *rest) if a.arg != "self"]
