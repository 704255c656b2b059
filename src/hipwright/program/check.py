"""Syntactic checks of forward, prepare and backward: everything that can be said without torch or a model.

Each function is walked once, statement by statement, with a small table of what every local is known to be ("tensor",
"num", "shape", "seq", "str", "none" or "any"), so that a swapped kernel argument is named before anything is built.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn

from hipwright.errors import ProgramError
from hipwright.program.language import (
    CAST_METHODS,
    EMPTIES,
    FACTORIES,
    FINFO_FIELDS,
    HOST_FUNCTIONS,
    MATH_FUNCTIONS,
    MATH_VALUES,
    RESERVED,
    ROOTS,
    TORCH_VALUES,
    VALUE_ATTRIBUTES,
    assigned_names,
    did_you_mean,
    is_self_path,
    library_name,
    refusal,
)

if TYPE_CHECKING:
    from hipwright.program.parse import Parsed

_TENSOR_CALLS = frozenset((*EMPTIES, *FACTORIES, "zeros_like", "ones_like", "full_like", "cat", "stack", "matmul", "mm",
                           "bmm", "addmm", "einsum")) - {"new_empty", "new_empty_strided"}  # fmt: skip
_TENSOR_METHODS = frozenset((*CAST_METHODS, "contiguous", "clone", "view", "reshape", "transpose", "permute", "t", "to",
                             "flatten", "expand", "unsqueeze", "squeeze", "new_empty", "sum", "mean"))  # fmt: skip
_STATEMENTS = "assignments, launches, if, for, assert, return and pass"


def check_functions(parsed: Parsed) -> Parsed:
    """Check every function; returns `parsed` with the names of prepared values, self paths and launched kernels."""
    prepared: tuple[str, ...] = ()
    paths: dict[str, None] = {}
    launched: dict[str, None] = {}
    for name in ("prepare", "forward", "backward"):
        function = parsed.functions.get(name)
        if function is None:
            continue
        checker = _Checker(parsed, name, prepared)
        checker.function(function)
        if name == "prepare":
            prepared = checker.prepared
        paths |= checker.paths
        launched |= checker.launched
    return replace(parsed, prepared=prepared, self_paths=tuple(paths), launched=tuple(launched))


Kinds = dict[str, str]  # local name -> what it is known to be


@dataclass
class _Checker:
    parsed: Parsed
    where: str
    prepared: tuple[str, ...]
    paths: dict[str, None] = field(default_factory=dict)
    launched: dict[str, None] = field(default_factory=dict)
    locals: set[str] = field(default_factory=set)

    # ------------------------------------------------------------ functions and statements

    def function(self, node: ast.FunctionDef) -> None:
        """Check one def."""
        args = node.args
        names = [a.arg for a in args.args]
        if node.decorator_list:
            raise problem(node.decorator_list[0], "decorators are not allowed")
        if not names or names[0] != "self":
            raise problem(node, f"the first parameter is self: def {self.where}(self, ...)")
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs:
            raise problem(node, "write plain parameters: no *args, **kwargs, / or keyword-only ones")
        if self.where == "prepare" and len(names) != 1:
            raise problem(node, "prepare takes self only; it sees parameters, not inputs")
        if self.where == "backward" and len(names) != 3:
            raise problem(node, "write def backward(self, grads, saved)")
        for name in names[1:]:
            self.bindable(name, node)
        for default in args.defaults:
            if not _is_literal(default):
                raise problem(default, "a default is a number, a string, a boolean, None or a tuple of these")
        kinds: Kinds = dict.fromkeys(names[1:], "any")
        self.locals = set(names[1:]) | _bound(node)
        if not self.block(node.body, kinds, first=True):
            raise problem(node, f"{self.where} may end without a return; end every path with one")

    def block(self, body: list[ast.stmt], kinds: Kinds, *, first: bool = False) -> bool:
        """Check statements in order; True when the block always returns. `kinds` is updated."""
        done = False
        for index, node in enumerate(body):
            if done:
                raise problem(node, "this can never run: the statement before it always returns; delete it")
            if first and index == 0 and isinstance(node, ast.Expr) and _is_str(node.value):
                continue
            done = self.statement(node, kinds)
        return done

    def statement(self, node: ast.stmt, kinds: Kinds) -> bool:
        """Check one statement; True when it always returns."""
        match node:
            case ast.Assign():
                kind = self.value(node.value, kinds)
                for target in node.targets:
                    self.assign(target, kind, kinds)
            case ast.AnnAssign(target=ast.Name(), value=ast.expr() as given):
                self.assign(node.target, self.value(given, kinds), kinds)
            case ast.AugAssign():
                if not isinstance(node.target, ast.Name):
                    self.refuse_target(node.target)
                kind = self.arithmetic(self.value(_load(node.target), kinds), self.value(node.value, kinds))
                self.assign(node.target, kind, kinds)
            case ast.Expr():
                self.expression_statement(node, kinds)
            case ast.Return():
                self.returns(node, kinds)
                return True
            case ast.If():
                return self.branch(node, kinds)
            case ast.For():
                self.loop(node, kinds)
            case ast.Assert():
                self.value(node.test, kinds)
                if node.msg is not None and not _is_str(node.msg):
                    raise problem(node.msg, "an assert's message is one plain string")
            case ast.Pass():
                pass
            case _:
                raise problem(node, _STATEMENT_HELP.get(type(node).__name__, f"a plan has {_STATEMENTS} only"))
        return False

    def branch(self, node: ast.If, kinds: Kinds) -> bool:
        """An if: kinds that differ between the two sides become "any"."""
        self.value(node.test, kinds)
        yes, no = dict(kinds), dict(kinds)
        ends = self.block(node.body, yes), bool(node.orelse) and self.block(node.orelse, no)
        sides = [side for side, ended in zip((yes, no), ends, strict=True) if not ended]
        kinds.clear()
        for side in sides:
            for name, kind in side.items():
                kinds[name] = kind if kinds.get(name, kind) == kind else "any"
        return all(ends)

    def loop(self, node: ast.For, kinds: Kinds) -> None:
        """A for: the body may run before anything in it, so what it assigns is "any" at its start."""
        if node.orelse:
            raise problem(node.orelse[0], "for ... else is not allowed; write the else part after the loop")
        kind = self.value(node.iter, kinds)
        if kind in ("tensor", "num", "str", "none"):
            raise problem(node.iter, f"a loop runs over range(...), a tuple, a shape or a module list on the host, not over a "
                 f"{_SAID[kind]}; loop over range(n) and index, or put the loop into a kernel")  # fmt: skip
        inner = dict(kinds)
        for name in assigned_names(node.target) + [n for n in _bound(node) if n in inner]:
            inner[name] = "any"
        self.assign(node.target, "num" if _is_range(node.iter) or kind == "shape" else "any", inner)
        self.block(node.body, inner)
        for name, value in inner.items():
            kinds[name] = value if kinds.get(name, value) == value else "any"

    def expression_statement(self, node: ast.Expr, kinds: Kinds) -> None:
        """A launch, or an in-place method on a buffer; nothing else does anything."""
        call = node.value
        if isinstance(call, ast.Call):
            if isinstance(call.func, ast.Subscript) and isinstance(call.func.value, ast.Name):
                self.launch(call, call.func, call.func.value.id, kinds)
                return
            if isinstance(call.func, ast.Attribute) and is_self_path(call.func.value) and _in_place(call.func.attr):
                if isinstance(call.func.value, ast.Name):
                    self.call_self(call)
                self.value(call.func.value, kinds)
                self.arguments(call, kinds)
                return
        if isinstance(call, (ast.Yield, ast.YieldFrom, ast.Await)):
            raise problem(node, f"a plan has {_STATEMENTS} only")
        self.value(call, kinds)
        raise problem(node, "this has no effect: assign the value to a name, or delete the line")

    def returns(self, node: ast.Return, kinds: Kinds) -> None:
        """A return of a value; prepare returns a dict, forward of a differentiable program a pair."""
        if node.value is None:
            raise problem(node, "return needs a value")
        if self.where == "prepare":
            self.prepare_returns(node.value, kinds)
            return
        if self.where == "forward" and self.parsed.has_backward:
            pair = node.value
            if not isinstance(pair, ast.Tuple) or len(pair.elts) != 2:
                raise problem(node, "a program with backward returns two things from forward: return outputs, saved")
        if isinstance(node.value, ast.Dict):
            for key in node.value.keys:
                if not _is_str(key):
                    raise problem(node, "the keys of a returned dict are plain strings")
            for item in node.value.values:
                self.value(item, kinds)
            return
        self.value(node.value, kinds)

    def prepare_returns(self, value: ast.expr, kinds: Kinds) -> None:
        if not isinstance(value, ast.Dict) or not all(_is_str(k) and _str(k).isidentifier() for k in value.keys):
            raise problem(value, 'prepare returns a dict of names, e.g. return {"w": w}; forward reads self.prepared.w')
        names = tuple(_str(k) for k in value.keys)
        if self.prepared and set(names) != set(self.prepared):
            raise problem(value, "every return of prepare must give the same names")
        self.prepared = names
        for item in value.values:
            self.value(item, kinds)

    # ------------------------------------------------------------ assignment

    def assign(self, target: ast.expr, kind: str, kinds: Kinds) -> None:
        """Bind a name or unpack into names."""
        if isinstance(target, ast.Name):
            self.bindable(target.id, target)
            kinds[target.id] = kind
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                inner = item.value if isinstance(item, ast.Starred) else item
                self.assign(inner, "num" if kind == "shape" and inner is item else "any", kinds)
        else:
            self.refuse_target(target)

    def refuse_target(self, target: ast.expr) -> NoReturn:
        """self.x = ..., y[0] = ... and the like."""
        if is_self_path(target):
            raise problem(target, "self is read only; keep the value in a local name, or pack it in prepare")
        if isinstance(target, ast.Subscript):
            raise problem(target, "tensors are not written in place; make a new one (torch.cat, torch.where, a kernel)")
        raise problem(target, "only names can be assigned")

    def bindable(self, name: str, node: ast.AST) -> None:
        """Refuse names that mean something else."""
        if name in RESERVED or name in self.parsed.kernels.signatures:
            what = "a kernel" if name in self.parsed.kernels.signatures else "part of the plan language"
            raise problem(node, f"{name} is {what}; choose another name")
        if name in self.parsed.knobs or name in self.parsed.constants:
            raise problem(node, f"{name} is a knob or constant and cannot be assigned; choose another name")
        if name.startswith("__"):
            raise problem(node, f"{name}: names with two leading underscores are not allowed")

    # ------------------------------------------------------------ expressions

    def value(self, node: ast.expr, kinds: Kinds) -> str:
        """Check an expression; returns what it is known to be."""
        match node:
            case ast.Constant():
                return self.constant(node)
            case ast.Name():
                return self.name(node, kinds)
            case ast.Attribute():
                return self.attribute(node, kinds)
            case ast.Subscript():
                return self.subscript(node, kinds)
            case ast.Call():
                return self.call(node, kinds)
            case ast.BinOp():
                return self.arithmetic(self.value(node.left, kinds), self.value(node.right, kinds))
            case ast.UnaryOp():
                kind = self.value(node.operand, kinds)
                return "num" if isinstance(node.op, ast.Not) else kind
            case ast.BoolOp():
                return self.merge([self.value(v, kinds) for v in node.values])
            case ast.Compare():
                parts = {self.value(v, kinds) for v in (node.left, *node.comparators)}
                return "num" if parts <= {"num", "none", "str", "shape"} else "any"
            case ast.IfExp():
                self.value(node.test, kinds)
                return self.merge([self.value(node.body, kinds), self.value(node.orelse, kinds)])
            case ast.Tuple() | ast.List():
                for item in node.elts:
                    self.value(item.value if isinstance(item, ast.Starred) else item, kinds)
                return "seq"
            case ast.ListComp():
                return self.comprehension(node, kinds)
            case _:
                raise problem(
                    node, _EXPRESSION_HELP.get(type(node).__name__, f"{type(node).__name__} is not allowed here")
                )

    def merge(self, kinds: list[str]) -> str:
        """The common kind, else "any"."""
        return kinds[0] if len(set(kinds)) == 1 else "any"

    def arithmetic(self, left: str, right: str) -> str:
        """What a binary operator gives."""
        if "tensor" in (left, right):
            return "tensor"
        if left == right == "num":
            return "num"
        return "seq" if {left, right} <= {"shape", "seq"} else "any"

    def constant(self, node: ast.Constant) -> str:
        """Numbers, strings, booleans, None and `...`."""
        if isinstance(node.value, (bytes, complex)):
            raise problem(node, f"a {type(node.value).__name__} literal is not allowed")
        if node.value is None:
            return "none"
        return "str" if isinstance(node.value, str) else "num" if isinstance(node.value, (int, float)) else "any"

    def name(self, node: ast.Name, kinds: Kinds) -> str:
        """A local, a knob or a constant."""
        name = node.id
        if name in kinds:
            return kinds[name]
        if name in self.parsed.knobs or name in self.parsed.constants:
            return "num"
        if name in self.parsed.kernels.signatures:
            raise problem(node, f"{name} is a kernel; launch it as a statement of its own: {name}[grid, block](...)")
        if name == "self":
            raise problem(node, "self is not a value; read what you need, e.g. self.weight")
        if name in ROOTS or name in HOST_FUNCTIONS:
            raise problem(node, f"{name} is not a value; call what you need, e.g. "
                 f"{'min(a, b)' if name in HOST_FUNCTIONS else name + '.<operator>(...)'}")  # fmt: skip
        if name in self.locals:
            raise problem(node, f"{name} is used before it is assigned")
        known = (*kinds, *self.parsed.knobs, *self.parsed.constants)
        raise problem(node, f"unknown name {name}{did_you_mean(name, known)}")

    def attribute(self, node: ast.Attribute, kinds: Kinds) -> str:
        """A torch constant, self.<path>, or a tensor's metadata."""
        library = library_name(node)
        if library is not None:
            return self.library_value(node, *library)
        if is_self_path(node):
            return self.self_path(node, kinds)
        if _is_finfo(node.value):
            if node.attr not in FINFO_FIELDS:
                raise problem(node, f"torch.finfo has {', '.join(FINFO_FIELDS)}")
            self.value(node.value, kinds)
            return "num"
        self.value(node.value, kinds)
        if node.attr not in VALUE_ATTRIBUTES:
            hint = refusal(node.attr)
            why = f": {hint}" if hint else did_you_mean(node.attr, VALUE_ATTRIBUTES)
            raise problem(node, f".{node.attr} is not readable in a plan{why}")
        if node.attr in ("T", "mT", "H", "mH"):
            return "tensor"
        return {"shape": "shape", "ndim": "num"}.get(node.attr, "any")

    def library_value(self, node: ast.Attribute, space: str, rest: tuple[str, ...]) -> str:
        """torch.float32, math.pi; functions are not values."""
        if space == "torch" and rest[0] in TORCH_VALUES and len(rest) == 1:
            return "num" if rest[0] in MATH_VALUES else "any"
        if space == "math" and rest[0] in MATH_VALUES:
            return "num"
        hint = refusal(rest[-1])
        other = f": {hint}" if hint else did_you_mean(rest[-1], TORCH_VALUES) or "; call it, or use a dtype"
        raise problem(node, f"{ast.unparse(node)} is not a value in a plan{other}")

    def self_path(self, node: ast.expr, kinds: Kinds) -> str:
        """Record the path; `self.prepared.<name>` must be one of prepare's names."""
        parts: list[str] = []
        base: ast.expr = node
        while isinstance(base, (ast.Attribute, ast.Subscript)):
            if isinstance(base, ast.Attribute):
                if base.attr.startswith("__"):
                    raise problem(base, f".{base.attr}: names with two leading underscores are not allowed")
                parts.append(base.attr)
            else:
                self.index(base.slice, kinds)
                constant = base.slice.value if isinstance(base.slice, ast.Constant) else None
                parts.append(str(constant) if isinstance(constant, (int, str)) else "*")
            base = base.value
        parts.reverse()
        if parts[0] == "prepared":
            return self.prepared_value(node, parts)
        self.paths[".".join(parts)] = None
        if parts[-1] == "training":
            return "num"
        return {"shape": "shape", "ndim": "num"}.get(parts[-1], "any") if isinstance(node, ast.Attribute) else "any"

    def prepared_value(self, node: ast.expr, parts: list[str]) -> str:
        if self.where == "prepare":
            raise problem(node, "prepare cannot read self.prepared; use the local name")
        if not self.parsed.has_prepare:
            raise problem(node, "there is no prepare(self) in this program, so self.prepared is empty")
        if len(parts) < 2:
            raise problem(node, "read one prepared value by name, e.g. self.prepared.w")
        if parts[1] not in self.prepared:
            raise problem(node, f"prepare returns no {parts[1]}{did_you_mean(parts[1], self.prepared)}")
        return "any"

    def subscript(self, node: ast.Subscript, kinds: Kinds) -> str:
        """An index or a slice of a tensor, tuple or module list."""
        if is_self_path(node):
            return self.self_path(node, kinds)
        if isinstance(node.value, ast.Name) and node.value.id in self.parsed.kernels.signatures:
            raise problem(node, f"a launch needs its arguments: {node.value.id}[grid, block](...)")
        kind = self.value(node.value, kinds)
        if kind in ("num", "none"):
            raise problem(node, f"a {_SAID[kind]} cannot be indexed")
        self.index(node.slice, kinds)
        if kind == "shape":
            return "shape" if isinstance(node.slice, ast.Slice) else "num"
        return "tensor" if kind == "tensor" else "any"

    def index(self, node: ast.expr, kinds: Kinds) -> None:
        """The inside of brackets."""
        if isinstance(node, ast.Slice):
            for part in (node.lower, node.upper, node.step):
                if part is not None:
                    self.value(part, kinds)
        elif isinstance(node, ast.Tuple):
            for item in node.elts:
                self.index(item, kinds)
        elif isinstance(node, ast.Starred):
            raise problem(node, "* is not allowed in an index")
        else:
            self.value(node, kinds)

    def comprehension(self, node: ast.ListComp, kinds: Kinds) -> str:
        """One `for`, over what a loop may run over; no conditions."""
        if len(node.generators) != 1 or node.generators[0].ifs:
            raise problem(node, "a list comprehension has one for and no if; write a for loop and build a tuple")
        generator = node.generators[0]
        if generator.is_async:
            raise problem(node, "async is not allowed")
        kind = self.value(generator.iter, kinds)
        if kind in ("tensor", "num", "str", "none"):
            raise problem(generator.iter, f"a loop runs over range(...), a tuple, a shape or a module list, not over a "
                 f"{_SAID[kind]}")  # fmt: skip
        inner = dict(kinds)
        self.assign(generator.target, "num" if _is_range(generator.iter) else "any", inner)
        self.value(node.elt, inner)
        return "seq"

    # ------------------------------------------------------------ calls

    def call(self, node: ast.Call, kinds: Kinds) -> str:
        """A host function, a library call or a method."""
        func = node.func
        if isinstance(func, ast.Name):
            return self.call_name(node, func.id, kinds)
        if isinstance(func, ast.Subscript) and isinstance(func.value, ast.Name):
            name = func.value.id
            if name in self.parsed.kernels.signatures:
                raise problem(node, f"a launch has no value: write {name}[grid, block](...) on a line of its own")
            raise problem(node, f"{name} is not a kernel of HIP{did_you_mean(name, self.parsed.signatures)}")
        if is_self_path(func) and (isinstance(func, ast.Subscript) or _rooted_at_self(func)):
            self.call_self(node)
        if not isinstance(func, ast.Attribute):
            raise problem(node, "only named functions and methods can be called")
        library = library_name(func)
        if library is not None:
            return self.call_library(node, *library, kinds)
        return self.call_method(node, func, kinds)

    def call_self(self, node: ast.Call) -> NoReturn:
        what = ast.unparse(node.func)
        raise problem(node, f"{what}(...) is not callable in a plan: modules and methods of the model stay outside; write the "
             f"operator, e.g. F.linear(x, {what}.weight, {what}.bias)")  # fmt: skip

    def call_name(self, node: ast.Call, name: str, kinds: Kinds) -> str:
        """min(a, b), range(n), ..."""
        kernels = self.parsed.kernels
        if name in kernels.signatures:
            raise problem(node, f"{name} is a kernel: launch it with a grid and a block, {name}[grid, block](...)")
        if name in kernels.unusable:
            raise problem(node, f"{name} cannot be launched: {kernels.unusable[name]}")
        if name == self.where or name in self.parsed.functions:
            raise problem(node, f"{name} cannot be called from a plan; recursion and helper functions are not allowed")
        if name not in HOST_FUNCTIONS:
            known = (*HOST_FUNCTIONS, *kernels.signatures)
            hint = refusal(name)
            other = f": {hint}" if hint else did_you_mean(name, known) or f": use {', '.join(HOST_FUNCTIONS)}"
            raise problem(node, f"{name} is not a function of the plan language{other}")
        kinds_of = self.arguments(node, kinds)
        if "tensor" in kinds_of and name not in ("len", "tuple", "zip", "enumerate", "reversed"):
            other = {"min": "torch.minimum", "max": "torch.maximum", "abs": "torch.abs", "sum": "torch.sum"}.get(name)
            raise problem(node, f"{name} works on host numbers, not tensors; "
                 f"{'use ' + other if other else 'a tensor cannot be read on the host'}")  # fmt: skip
        return "seq" if name in ("range", "tuple", "enumerate", "zip", "reversed") else "num"

    def call_library(self, node: ast.Call, space: str, rest: tuple[str, ...], kinds: Kinds) -> str:
        """torch.*, F.*, math.*; whether the operator exists and is functional is decided where torch is."""
        name, spelled = rest[-1], ast.unparse(node.func)
        for part in rest:
            if hint := refusal(part):
                raise problem(node, f"{spelled} is refused: {hint}")
        if space == "" or (len(rest) > 1 and space != "aten") or len(rest) > 2:
            raise problem(node, f"{spelled} is not part of the plan language; use torch.*, torch.nn.functional.* (F.*), "
                 "torch.linalg.*, torch.fft.*, torch.special.*, torch.ops.aten.* or math.*")  # fmt: skip
        if _in_place(rest[0]):
            raise problem(node, f"{spelled} works in place; use {spelled.rstrip('_')}")
        if space == "math":
            if name not in MATH_FUNCTIONS:
                raise problem(node, f"{spelled} is not available{did_you_mean(name, MATH_FUNCTIONS)}")
            if "tensor" in self.arguments(node, kinds):
                raise problem(node, f"{spelled} works on host numbers; use torch.{name}")
            return "num"
        self.arguments(node, kinds)
        return "tensor" if space == "torch" and name in _TENSOR_CALLS else "any"

    def call_method(self, node: ast.Call, func: ast.Attribute, kinds: Kinds) -> str:
        """y.view(...), x.size(0), ..."""
        name = func.attr
        kind = self.value(func.value, kinds)
        if hint := refusal(name):
            raise problem(node, f".{name}() is refused: {hint}")
        if name.startswith("_"):
            raise problem(node, f".{name}() is private; use a public operator")
        if _in_place(name):
            raise problem(node, f".{name}() works in place: use .{name.rstrip('_')}(), whose result is new. Only buffers are "
                 "updated, as a statement: self.<buffer>.copy_(value)")  # fmt: skip
        kinds_of = self.arguments(node, kinds)
        if name == "to" and "str" in kinds_of:
            raise problem(node, ".to() takes a dtype (torch.float16) or another tensor's dtype, not a device name")
        if kind in ("num", "none", "str", "seq"):
            raise problem(node, f"a {_SAID[kind]} has no method {name} in a plan")
        if name == "size":
            return "num" if node.args or node.keywords else "shape"
        if name in ("numel", "nelement", "dim", "ndimension", "is_contiguous", "element_size", "storage_offset"):
            return "num"
        return "tensor" if name in _TENSOR_METHODS else "any"

    def arguments(self, node: ast.Call, kinds: Kinds) -> list[str]:
        """Check arguments; out=, inplace=True and generator= are refused."""
        found = [self.value(a.value if isinstance(a, ast.Starred) else a, kinds) for a in node.args]
        for keyword in node.keywords:
            if keyword.arg is None:
                raise problem(keyword.value, "** is not allowed in a call")
            if keyword.arg == "out":
                raise problem(keyword.value, "out= writes in place; use the returned value")
            if keyword.arg == "inplace" and not _is_constant(keyword.value, False):
                raise problem(keyword.value, "inplace= is not allowed; use the returned value")
            if keyword.arg == "generator":
                raise problem(keyword.value, "generator= is random state; a plan has none")
            if keyword.arg == "device" and _is_str(keyword.value):
                raise problem(
                    keyword.value, "a plan stays on the device of its inputs; leave device out or write device=x.device"
                )
            found.append(self.value(keyword.value, kinds))
        return found

    # ------------------------------------------------------------ launches

    def launch(self, node: ast.Call, func: ast.Subscript, name: str, kinds: Kinds) -> None:
        """kernel[grid, block(, lds_bytes)](args...)."""
        kernels = self.parsed.kernels
        if name not in kernels.signatures:
            if name in kernels.unusable:
                raise problem(node, f"{name} cannot be launched: {kernels.unusable[name]}")
            raise problem(node, f"HIP has no kernel {name}{did_you_mean(name, kernels.signatures)}; a kernel is declared "
                 f'extern "C" __global__ void {name}(...)')  # fmt: skip
        shape = func.slice
        if not isinstance(shape, ast.Tuple) or len(shape.elts) not in (2, 3):
            raise problem(node, f"a launch needs a grid and a block: {name}[grid, block](...) or {name}[grid, block, lds_bytes]"
                 "(...); write a grid of several dimensions as a tuple, e.g. [(gx, gy), 256]")  # fmt: skip
        for what, item in zip(("grid", "block"), shape.elts, strict=False):
            self.dimensions(what, item, kinds)
        if len(shape.elts) == 3 and self.value(shape.elts[2], kinds) in ("tensor", "seq", "shape", "str", "none"):
            raise problem(shape.elts[2], "lds_bytes is one integer")
        if node.keywords:
            raise problem(node, f"the arguments of {name} are given by position")
        if any(isinstance(a, ast.Starred) for a in node.args):
            raise problem(node, f"write the arguments of {name} one by one, without *")
        params = kernels.signatures[name].params
        if len(node.args) != len(params):
            listed = ", ".join(f"{p.ctype}{'*' if p.pointer else ''} {p.name}" for p in params)
            raise problem(node, f"{name} takes {len(params)} arguments ({listed}), not {len(node.args)}")
        for param, arg in zip(params, node.args, strict=True):
            kind = self.value(arg, kinds)
            if param.pointer and kind in ("num", "shape", "seq", "str"):
                raise problem(arg, f"{name}: {param.name} is {param.ctype}*, so it takes a tensor, not a {_SAID[kind]}")
            if not param.pointer and kind in ("tensor", "shape", "seq", "str", "none"):
                raise problem(arg, f"{name}: {param.name} is {param.ctype}, so it takes a number, not a {_SAID[kind]}")
        self.launched[name] = None

    def dimensions(self, what: str, node: ast.expr, kinds: Kinds) -> None:
        items = node.elts if isinstance(node, ast.Tuple) else [node]
        if not 1 <= len(items) <= 3:
            raise problem(node, f"a {what} has one to three dimensions")
        for item in items:
            kind = self.value(item, kinds)
            if kind in ("tensor", "str", "none") or (kind in ("seq", "shape") and item is not node):
                raise problem(item, f"a {what}'s dimensions are integers, not a {_SAID[kind]}")
            if isinstance(item, ast.Constant) and (not isinstance(item.value, int) or item.value < 1):
                raise problem(item, f"a {what}'s dimensions are positive integers")


# ---------------------------------------------------------------- helpers

_SAID = {"tensor": "tensor", "num": "number", "shape": "shape", "seq": "tuple", "str": "string", "none": "None"}
_STATEMENT_HELP = {
    "While": "while is not allowed; use for ... in range(n), or put the loop into a kernel",
    "Break": "break is not allowed; compute the loop's range beforehand",
    "Continue": "continue is not allowed; use an if inside the loop",
    "FunctionDef": "functions cannot be defined inside a plan; write the steps where they are used",
    "ClassDef": "classes are not allowed in a plan",
    "With": "with is not allowed; a plan has no modes, streams or files",
    "Try": "try is not allowed; a plan has no fallback, so a failure is seen",
    "Raise": "raise is not allowed; use assert <condition>, \"why\" for shapes that the program does not claim",
    "Import": "imports belong to the top of the file",
    "ImportFrom": "imports belong to the top of the file",
    "Global": "global is not allowed; a plan keeps no state between calls",
    "Nonlocal": "nonlocal is not allowed; a plan keeps no state between calls",
    "Delete": "del is not allowed; memory is freed when a name is no longer used",
    "Match": "match is not allowed; use if",
    "AnnAssign": "give the name a value, e.g. n: int = 4",
    "AsyncFor": "async is not allowed", "AsyncWith": "async is not allowed", "AsyncFunctionDef": "async is not allowed",
}  # fmt: skip
_EXPRESSION_HELP = {
    "Lambda": "lambda is not allowed; write the steps out",
    "GeneratorExp": "a generator is not allowed; use a list comprehension with one for",
    "SetComp": "a set is not allowed; use a tuple",
    "DictComp": "a dict is not allowed here; use local names",
    "Dict": "a dict is allowed only after return",
    "Set": "a set is not allowed; use a tuple",
    "NamedExpr": ":= is not allowed; assign on a line of its own",
    "JoinedStr": "f-strings are not allowed; a message is one plain string",
    "Starred": "* is allowed in tuples and library calls only",
    "Await": "async is not allowed",
    "Yield": "yield is not allowed; use return",
    "YieldFrom": "yield is not allowed; use return",
    "Slice": "a slice is allowed in brackets only",
}


def problem(node: ast.AST, message: str) -> ProgramError:
    """The error of a node, with its line."""
    return ProgramError(message, getattr(node, "lineno", 0))


def _in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _is_str(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _str(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return all(_is_literal(item) for item in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (bool, int, float, str)))


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


def _is_finfo(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and library_name(node.func) in (("torch", ("finfo",)), ("torch", ("iinfo",)))


def _rooted_at_self(func: ast.expr) -> bool:
    """self.method(...) itself, as against self.weight.t(), whose owner may be a tensor."""
    return isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name)


def _load(target: ast.Name) -> ast.Name:
    return ast.copy_location(ast.Name(target.id, ast.Load()), target)


def _bound(node: ast.AST) -> set[str]:
    """Names that are assigned anywhere inside."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
