"""Converts statements of a C++ host function to statements of a plan: variables, branches, loops and launches."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hipwright.program.convert.cpp_calls import RETURNS_NO_ERROR
from hipwright.program.convert.cpp_expression_parser import Node
from hipwright.program.convert.cpp_flow import assigned, returns
from hipwright.program.convert.cpp_memory import HostMemoryConverter
from hipwright.program.convert.cpp_text import CppItem, Inconvertible
from hipwright.program.convert.host_value import CTYPES, NONE, OK, STREAM, HostValue, kind_of, of_type
from hipwright.program.convert.plan_writer import PlanLines

_GUARDS = re.compile(
    r"(?:(?:at|c10)::)?(?:(?:cuda|hip)::)?(?:Optional)?(?:CUDA|Device|HIP)Guard(?:MasqueradingAsCUDA)?"
)
_FLOATING = ("float64", "float32")
_INTEGRAL = ("uint8", "int8", "int16", "int32", "int64")
_DISPATCH = {
    "FLOATING_TYPES": _FLOATING,
    "ALL_TYPES": (*_INTEGRAL, *_FLOATING),
    "INTEGRAL_TYPES": _INTEGRAL,
    "FLOATING_TYPES_AND_HALF": (*_FLOATING, "float16"),
    "REDUCED_FLOATING_TYPES": ("float16", "bfloat16"),
}
_WITHOUT_EFFECT = (
    "static_assert",
    "printf",
    "fprintf",
    "TORCH_WARN",
    "C10_CUDA_CHECK",
    "AT_CUDA_CHECK",
    "C10_HIP_CHECK",
    "AT_HIP_CHECK",
    "C10_CUDA_KERNEL_LAUNCH_CHECK",
    "C10_HIP_KERNEL_LAUNCH_CHECK",
    "CUDA_KERNEL_LAUNCH_CHECK",
)
LaunchKernel = Callable[[str, Sequence[str] | None, Sequence[HostValue], dict[str, str]], tuple[str, Sequence[str]]]
"""(kernel, template arguments, arguments, types in scope) -> (entry kernel, kinds of its parameters)."""


class HostStatementConverter(HostMemoryConverter):
    """Writes the statements of one function.

    functions: by name, including lambdas. literals: locals that hold a literal and were not reassigned. own: locals of
    the call being written, which it may reassign.
    """

    writer: PlanLines
    launched: LaunchKernel
    functions: dict[str, CppItem]
    literals: dict[str, str]
    own: set[str]

    def statement(self, node: Node) -> None:
        """Writes one statement. The line of an error is that of the innermost statement with one."""
        try:
            self.written(node)
        except Inconvertible as error:
            raise error.at(getattr(node, "line", 0)) from None

    def written(self, node: Node) -> None:
        """Writes one statement by its form."""
        match node[0]:
            case "decl":
                self.declare(node[1], node[2])
            case "assign":
                self.assign(node)
            case "expr":
                self.call_statement(node[1])
            case "launch":
                self.launch(node)
            case "block":
                for inner in node[1]:
                    self.statement(inner)
            case "if":
                self.branch(node, node[2], node[3], self.statements)
            case "for":
                self.loop(node)
            case "alias":
                self.types[node[1]] = of_type(node[2], self.types)
            case "unpack":
                value = self.value(node[2])
                names = [self.local(n) for n in node[1]]
                self.writer.line(f"{', '.join(names)} = {value.text}")
                self.env |= {c: HostValue("tensor", n) for c, n in zip(node[1], names, strict=True)}
            case "throw":
                self.writer.line("assert False, 'the host code throws here'")
            case _:
                raise Inconvertible(f"a {node[0]} statement")

    def statements(self, nodes: list[Node]) -> None:
        """Writes statements in order."""
        for node in nodes:
            self.statement(node)

    def declare(self, ctype: str, variables: Sequence[tuple[str, bool, str, list[Node]]]) -> None:
        """Declares variables: numbers and tensors become locals; pointers and streams are replaced by their values."""
        if _GUARDS.fullmatch(ctype):
            return
        for name, pointer, form, args in variables:
            if re.fullmatch(r"(?:cuda|hip)Error_t|(?:cuda|hip)Stream_t", ctype) or "Stream" in ctype:
                if args and "Error" in ctype:
                    self.value(args[0])  # a call for its effect
                self.env[name] = OK if "Error" in ctype else STREAM
                continue
            if not args and form != "{":
                if ctype == "dim3":
                    self.env[name] = HostValue("dim3", "(1, 1, 1)", parts=("1", "1", "1"))
                    continue
                element = of_type(ctype.rstrip("*"), self.types)
                kind = "pointer" if pointer else kind_of(ctype, self.types)
                self.env[name] = HostValue(f"unset {kind}", "", ctype=element)
                continue
            if args and args[0][0] == "lambda":
                self.functions[name] = CppItem("host", "", name, f"auto {name}{args[0][2]}", args[0][3])
                continue
            typed = ctype != "auto" and form in ("(", "{")
            value = self.on_make(ctype, args) if typed else self.value(args[0])
            kind = kind_of(ctype, self.types)
            if kind in ("int", "float", "bool") and not pointer:
                value = self.number_as(value, of_type(ctype, self.types))
            elif ctype == "dim3" and value.kind == "int":
                value = HostValue("dim3", f"({value.text},)", parts=(value.text, "1", "1"))
            self.bind(name, value, pointer or value.kind in ("stream", "ok", "options", "device", "dim3", "none"))

    def bind(self, name: str, value: HostValue, symbolic: bool) -> None:
        """Binds a C++ name to a new local of the plan, or to its value where `symbolic`."""
        if symbolic or value.known is not None:
            self.env[name] = value
            return
        local = self.local(name)
        self.writer.line(f"{local} = {value.text}")
        self.env[name] = HostValue(value.kind, local, ctype=value.ctype)
        if value.kind == "int" and value.text.isdigit():
            self.literals[local] = value.text

    def local(self, name: str) -> str:
        """A new local that this call may reassign."""
        found = self.writer.fresh(name)
        self.own.add(found)
        return found

    def assign(self, node: Node) -> None:
        """Writes an assignment: x = y, n *= y."""
        _, target, op, given = node
        if target[0] == "member" and target[2] in ("x", "y", "z"):
            owner = self.env.get(target[1][1], NONE)
            if owner.kind == "dim3" and op == "=":
                parts = list(owner.parts)
                parts["xyz".index(target[2])] = self.value(given).text
                self.env[target[1][1]] = HostValue("dim3", f"({', '.join(parts)})", parts=tuple(parts))
                return
        if target[0] != "name" or target[1] not in self.env:
            raise Inconvertible("an assignment to something other than a variable")
        old, value = self.env[target[1]], self.value(given)
        if old.kind in ("ok", "stream", "options"):
            self.env[target[1]] = value
            return
        kind = old.kind.removeprefix("unset ")
        if op != "=":
            whole = self.on_binary(op[:-1], target, given)
            value = HostValue("int", f"int({whole.text})") if kind == "int" and whole.kind == "float" else whole
        elif kind == "int" and value.kind == "float":
            value = HostValue("int", f"int({value.text})")
        local = old.text if old.text in self.own else self.local(target[1])
        self.literals.pop(local, None)
        self.writer.line(f"{local} = {value.text}")
        self.env[target[1]] = HostValue(value.kind if kind == "any" else kind, local, ctype=old.ctype)

    def assign_locals(self, nodes: Sequence[Node]) -> None:
        """Gives every variable that `nodes` assign a local beforehand, so that branches and loops use the same one."""
        for name in assigned(nodes):
            old = self.env.get(name)
            if old is None or old.text in self.own or old.kind in ("ok", "stream", "options", "dim3"):
                continue
            local = self.local(name)
            if old.text:
                self.writer.line(f"{local} = {old.text}")
            self.env[name] = HostValue(old.kind, local, ctype=old.ctype)

    def call_statement(self, node: Node) -> None:
        """Writes a call statement: checks become guards, calls that only return an error code are dropped."""
        if node[0] != "call" or node[1][0] != "name":
            self.value(node)
            raise Inconvertible("an expression without effect on the plan")
        name, args = node[1][1], node[2]
        if name in ("TORCH_CHECK", "AT_ASSERT", "AT_ASSERTM", "TORCH_INTERNAL_ASSERT", "assert", "TORCH_CHECK_EQ"):
            self.check(args)
        elif name in _WITHOUT_EFFECT or RETURNS_NO_ERROR.fullmatch(name):
            return
        elif name.startswith("AT_DISPATCH_"):
            self.dispatch(name.removeprefix("AT_DISPATCH_"), args)
        elif name == "hipLaunchKernelGGL":
            self.launch(("launch", args[0], args[1:5], args[5:]))
        elif self.memory_call(name, args) is None and self.call_own(name, args) is None:
            raise Inconvertible(f"{name}() for its effect")

    def check(self, args: Sequence[Node]) -> None:
        """Writes TORCH_CHECK(condition, ...) as a guard."""
        value = self.value(args[0])
        words = "".join(str(a[1]) for a in args[1:] if a[0] == "str") or "a check of the host code"
        if value.known is not True:
            self.writer.line(f"assert {value.text}, {words!r}")

    def branch(self, node: Node, then: list[Node], otherwise: list[Node], write: Callable[[list[Node]], None]) -> None:
        """Writes an if; only the taken branch where the condition is known at conversion."""
        test = self.value(node[1])
        if test.known is not None:
            write(then if test.known else otherwise)
            return
        self.assign_locals([*then, *otherwise])
        before = dict(self.env)
        sides = []
        for lead, part in ((f"if {test.text}:", then), ("else:", otherwise)):
            self.env = dict(before)
            self.writer.line(lead)
            indent, start = self.writer.indent, len(self.writer.lines)
            self.writer.indent += "    "
            write(part)
            if len(self.writer.lines) == start:
                self.writer.line("pass")
            self.writer.indent = indent
            sides.append(self.env)
        self.env = self.merge_bindings(before, sides)

    def merge_bindings(
        self, before: dict[str, HostValue], sides: Sequence[dict[str, HostValue]]
    ) -> dict[str, HostValue]:
        """The bindings after an if. Raises Inconvertible where the branches leave different ones."""
        after = dict(before)
        for name in before:
            a, b = (side[name] for side in sides)
            if a.text != b.text:
                raise Inconvertible(f"{name} differs between two branches")
            after[name] = a if a.kind != before[name].kind else b
        return after

    def loop(self, node: Node) -> None:
        """Writes for (int i = a; i < b; ++i) as for i in range(a, b)."""
        _, init, test, step, body = node
        if init[0] != "decl" or len(init[2]) != 1 or test[0] != "binary" or test[2][1:2] != (init[2][0][0],):
            raise Inconvertible("a for loop that does not count")
        name, start = init[2][0][0], self.value(init[2][0][3][0])
        stop, by = self.value(test[3]), self.value(step[3])
        sign = {"<": ("+=", ""), "<=": ("+=", " + 1"), ">": ("-=", ""), ">=": ("-=", " - 1")}.get(test[1])
        if sign is None or step[0] != "assign" or step[1][1] != name or step[2] != sign[0]:
            raise Inconvertible("a for loop that does not count")
        self.assign_locals(body)
        local = self.writer.fresh(name)
        stride = f"-({by.text})" if sign[0] == "-=" else by.text
        self.writer.line(f"for {local} in range({start.text}, ({stop.text}){sign[1]}, {stride}):")
        before, indent = dict(self.env), self.writer.indent
        self.env[name] = HostValue("int", local)
        self.writer.indent += "    "
        self.statements(body)
        self.writer.indent = indent
        self.env = before

    # ------------------------------------------------------------ launches

    def launch(self, node: Node) -> None:
        """Writes kernel<<<grid, block, lds, stream>>>(args) as a launch."""
        _, kernel, config, args = node
        if kernel[0] != "name":
            raise Inconvertible("a kernel that is not launched by its name")
        given = [self.value(a) for a in args]
        targs = None if kernel[2] is None else [self.constant_names(t) for t in kernel[2]]
        entry, kinds = self.launched(kernel[1].split("::")[-1], targs, given, self.types)
        shape = [self.value(c) for c in config[:3]]
        dims = [v.text if v.kind == "dim3" else f"{v.text}" for v in shape[:2]]
        lds = shape[2].text if len(shape) > 2 else "0"
        spelled = ", ".join(dims) + (f", {lds}" if lds != "0" else "")
        passed = [_argument(kind, value) for kind, value in zip(kinds, given, strict=True)]
        self.writer.line(f"{entry}[{spelled}]({', '.join(passed)})")

    def constant_names(self, text: str) -> str:
        """A template argument with the values of locals that are literals."""

        def number(match: re.Match[str]) -> str:
            known = self.env.get(match.group())
            if known is None or known.kind != "int":
                return match.group()
            return known.text if known.text.isdigit() else self.literals.get(known.text, match.group())

        return re.sub(r"[A-Za-z_]\w*", number, text)

    def dispatch(self, macro: str, args: Sequence[Node]) -> None:
        """Writes AT_DISPATCH_...(dtype, "name", [&] { ... }): one branch for each dtype, which binds scalar_t."""
        body = args[-1]
        if body[0] != "lambda":
            raise Inconvertible(f"AT_DISPATCH_{macro} without a lambda")
        name, extra = re.subn(r"_AND(?:\d)?$", "", macro)
        types = _DISPATCH.get(macro) or _DISPATCH.get(name)
        if types is None:
            raise Inconvertible(f"AT_DISPATCH_{macro}")
        count = len(args) - 3
        if extra:
            types = (*types, *(self.value(a).text.removeprefix("torch.") for a in args[:count]))
        subject = self.value(args[-3])
        if subject.kind != "dtype":
            raise Inconvertible(f"AT_DISPATCH_{macro} over a {subject.kind}")
        listed = " or ".join(f"{subject.text} == torch.{t}" for t in types)
        self.writer.line(f"assert {listed}, 'this dtype is not dispatched'")
        self.assign_locals(body[1])
        before, outer = dict(self.env), dict(self.types)
        for index, dtype in enumerate(types):
            self.env, self.types = dict(before), {**outer, "scalar_t": CTYPES[dtype]}
            last = index == len(types) - 1
            self.writer.line(
                "else:" if last and index else f"{'el' if index else ''}if {subject.text} == torch.{dtype}:"
            )
            indent, start = self.writer.indent, len(self.writer.lines)
            self.writer.indent += "    "
            if any(map(returns, body[1][:-1])):
                raise Inconvertible("a return inside AT_DISPATCH")
            self.statements([n for n in body[1] if n[0] != "return"])
            if len(self.writer.lines) == start:
                self.writer.line("pass")
            self.writer.indent = indent
        self.env, self.types = before, outer


def _argument(kind: str, value: HostValue) -> str:
    """The text of a kernel argument: a tensor for a pointer, a number otherwise."""
    if kind == "pointer":
        if value.kind not in ("pointer", "none"):
            raise Inconvertible(f"a {value.kind} is passed as a pointer")
        return value.text
    if value.kind not in ("int", "float", "bool", "any"):
        raise Inconvertible(f"a {value.kind} is passed as a number")
    whole = "float" not in kind and kind != "bool" and value.kind == "float"
    return f"int({value.text})" if whole else value.text
