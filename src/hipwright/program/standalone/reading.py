"""Converts a stand-alone CUDA or HIP file to a program: its kernels, and the plan that its host code or comments give.

Kernels keep their bodies (`convert.cuda_device`); the plan is that of the file's own comments (`plan_comment`), else it
is inferred from the host function (`inferred`). A conversion is never trusted: the program is verified like any other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hipwright import syntax
from hipwright.errors import ProgramError
from hipwright.program.convert.cpp_host import HostTranslator
from hipwright.program.convert.cpp_text import CppItem, ExtensionSource, Inconvertible, split_items
from hipwright.program.convert.cuda_device import PREAMBLE, DeviceSource
from hipwright.program.convert.forward_expression import Extensions
from hipwright.program.convert.forward_plan import Forward
from hipwright.program.convert.forward_state import Attributes, method
from hipwright.program.convert.host_value import HostValue
from hipwright.program.convert.plan_writer import PlanLines
from hipwright.program.language import RESERVED
from hipwright.program.parse import parse
from hipwright.program.standalone.entry import entry
from hipwright.program.standalone.inferred import inferred_plan
from hipwright.program.standalone.plan_comment import PlanComment, plan_class, plan_comment
from hipwright.program.standalone.task_names import TaskNames, task_names
from hipwright.program.standalone.wave_size import WaveAssumption, wave_assumptions
from hipwright.records import Program

MAX_TEXT = 1_000_000
SUFFIXES = {
    ".cu": "cuda",
    ".cuh": "cuda",
    ".hip": "hip",
    ".cpp": "",
    ".cc": "",
    ".cxx": "",
    ".h": "",
    ".hpp": "",
    ".c": "",
}
_HIP = re.compile(r"#\s*include\s*[<\"]hip/|\bhip(?:LaunchKernelGGL|Malloc|Stream_t|Error_t|GetLastError)\b")
_CACHE_HINTS = {
    **{name: f"#define {name}(p) (*(p))" for name in ("__ldca", "__ldcg", "__ldcs", "__ldcv", "__ldlu")},
    **{name: f"#define {name}(p, v) (*(p) = (v))" for name in ("__stcg", "__stcs", "__stwb", "__stwt")},
}
"""CUDA's loads and stores with a cache hint, which HIP has not: plain ones."""
_CUDA_ONLY = {
    r"__match_(?:any|all)_sync|__reduce_\w+_sync": "matches and reductions of a warp by instruction",
    r"__dp[24]a": "dot products of small integers by instruction",
    r"__nanosleep|__trap|__brkpt": "control of the processor",
    r"rocwmma::|__builtin_amdgcn_\w+": "instructions of AMD alone",
}
_LAUNCH = re.compile(r"(?P<kernel>\w+)\s*(?:<[^<>]*>)?\s*<<<(?P<grid>[^;]*?)>>>\s*\((?P<given>[^;]*)\)\s*;")
HIP_PREAMBLE = """// the operations of a whole wave, whose masks are left out
#define __shfl_sync(mask, ...) __shfl(__VA_ARGS__)
#define __shfl_up_sync(mask, ...) __shfl_up(__VA_ARGS__)
#define __shfl_down_sync(mask, ...) __shfl_down(__VA_ARGS__)
#define __shfl_xor_sync(mask, ...) __shfl_xor(__VA_ARGS__)
#define __ballot_sync(mask, p) (__ballot(p) & (unsigned long long)(mask))
#define __any_sync(mask, p) __any(p)
#define __all_sync(mask, p) __all(p)
"""


@dataclass(frozen=True)
class StandaloneSource:
    """A source as a program. dialect: "cuda" or "hip"; assumed: what the plan takes for granted; waves: by line."""

    program: Program
    dialect: str
    assumed: tuple[str, ...] = ()
    waves: tuple[WaveAssumption, ...] = ()

    @property
    def notes(self) -> list[str]:
        """All that is to be known of the conversion, a sentence each."""
        return [*(f"assumed: {one}" for one in self.assumed), *(one.describe() for one in self.waves)]


def dialect_of(name: str, text: str) -> str:
    """The dialect of a C++ file: "cuda" or "hip", by its suffix, else by its text; "" for a file of another suffix."""
    suffix = Path(name).suffix.lower()
    if suffix not in SUFFIXES:
        return ""
    return SUFFIXES[suffix] or ("hip" if _HIP.search(text) else "cuda")


def read_source(name: str, text: str, task_source: str) -> StandaloneSource:
    """Converts a file for a task. name: of the file. Raises ProgramError with the file's line and the reason."""
    if len(text) > MAX_TEXT:
        raise ProgramError(f"the file has {len(text)} characters; the limit is {MAX_TEXT}")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    dialect = dialect_of(name, text) or "cuda"
    try:
        program, assumed = _Conversion(name, text, dialect, task_source).program()
    except RecursionError:
        raise Inconvertible("the file is nested too deeply") from None
    try:
        parse(program.text)
    except ProgramError as error:
        raise _of_source(error, program.text, text) from None
    return StandaloneSource(program, dialect, tuple(assumed), wave_assumptions(text, dialect))


class _Conversion:
    def __init__(self, name: str, text: str, dialect: str, task_source: str) -> None:
        self.name = name
        self.comment = plan_comment(text)
        self.source = split_items((text,), located=True)
        self.task = task_names(task_source)
        _check_includes(self.source)
        _check_names(self.source)
        hints = [name for name in _CACHE_HINTS if re.search(rf"\b{name}\b", text) and name not in self.source.macros]
        self.source.items[:0] = [CppItem("define", _CACHE_HINTS[name], name) for name in hints]
        _leave_out(self.source, self.comment)
        used = {*self.task.inputs, *self.comment.named, *self.source.functions("kernel")}
        self.writer = PlanLines(set(RESERVED) | used)
        self.device = DeviceSource(self.source, PREAMBLE if dialect == "cuda" else HIP_PREAMBLE)
        self.host = HostTranslator(self.source, self.writer, self.device.launched)
        self.host.globals |= {known: HostValue("int", known) for known in self.comment.named}

    def program(self) -> tuple[Program, list[str]]:
        """The program and what its plan assumes."""
        body, assumed = self.body()
        owner = plan_class(body, self.task.inputs)
        forward = method(owner, "forward")
        assert forward is not None
        plan = _Plan(owner, self).convert(forward)
        plan = ast.unparse(syntax.parse(plan))
        hip = self.device.text()
        if "'''" in hip:
            raise Inconvertible("the kernels contain '''")
        top = "".join(f"{text}\n" for _, text in self.comment.top)
        title = re.sub(r"[^\w. -]", "_", Path(self.name).name)
        text = f"\"\"\"Converted from {title}.\"\"\"\n\nHIP = r'''\n{hip}\n'''\n\n{top}\n\n{plan}\n"
        return Program(text=text), assumed

    def body(self) -> tuple[list[tuple[int, str]], list[str]]:
        """The lines of forward, each with its line in the file, and what they assume."""
        if self.comment.body:
            return list(self.comment.body), []
        try:
            function = entry(self.source)
            inferred = inferred_plan(function, self.task, self.host.types)
        except Inconvertible as error:
            raise _with_example(error, self.source, self.task) from None
        return [(function.line, line) for line in inferred.lines], inferred.assumed


class _Plan(Forward):
    """The plan's lines as a forward: calls of the file's host functions are inlined, launches of kernels stay."""

    def __init__(self, owner: ast.ClassDef, conversion: _Conversion) -> None:
        hosts = conversion.source.functions("host")
        aliases = {name: (0, name) for name in hosts}
        extensions = Extensions({}, aliases, [dict(hosts)], [conversion.host])
        super().__init__(ast.Module([owner], []), owner, Attributes(), extensions, conversion.writer, {})
        self.methods = {}
        self.device = conversion.device
        self.host = conversion.host

    def block(self, body: Any, names: dict[str, str], on_return: Callable[[str], None]) -> None:
        """Writes statements in order; an error that has no line gets that of its statement."""
        for node in body:
            if isinstance(node, (ast.If, ast.For)):
                super().block([node], names, on_return)
                continue
            try:
                super().block([node], names, on_return)
            except Inconvertible as error:
                raise error if error.why.startswith("line ") else error.at(node.lineno) from None

    def statement(self, node: ast.stmt, names: dict[str, str]) -> None:
        """Writes a launch as it stands, other statements as in a forward."""
        call = node.value if isinstance(node, ast.Expr) else None
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Subscript)
            and isinstance(call.func.value, ast.Name)
        ):
            given = [HostValue("any", "") for _ in call.args]
            launched, _ = self.device.launched(call.func.value.id, None, given, self.host.types)
            call.func.value.id = launched
            self.writer.line(self.text(call, names))
            return
        super().statement(node, names)


def _check_includes(source: ExtensionSource) -> None:
    for item in source.items:
        found = re.search(r"\"([^\"]+)\"", item.text) if item.kind == "include" else None
        if found and not re.match(r"(?:hip/|cuda|hipwright/|torch/)", found[1]):
            raise Inconvertible(f'#include "{found[1]}": write that file\'s text in its place', item.line)


def _check_names(source: ExtensionSource) -> None:
    for item in source.items:
        for pattern, what in _CUDA_ONLY.items() if item.kind in ("kernel", "device", "define") else ():
            if found := re.search(rf"\b(?:{pattern})", item.text):
                line = item.line + item.text.count("\n", 0, found.start())
                raise Inconvertible(f"the device code uses {what} ({found.group()})", line)


def _leave_out(source: ExtensionSource, comment: PlanComment) -> None:
    """Leaves out the source's own definitions of names that the plan makes knobs or constants."""
    for name in comment.named:
        source.macros.pop(name, None)
        constant = re.compile(rf"(?:static\s+)?(?:constexpr|const)\s[\w\s]*\b{name}\s*=")
        own = [item for item in source.items if item.kind == "define" and item.name == name]
        own += [item for item in source.items if item.kind == "other" and constant.match(item.text)]
        source.items[:] = [item for item in source.items if item not in own]


def _with_example(error: Inconvertible, source: ExtensionSource, task: TaskNames) -> Inconvertible:
    """The error with a hint: how the plan is written as comments, with a launch of the file where it has one."""
    kernel = next(iter(source.functions("kernel")), "kernel")
    first = task.inputs[0] if task.inputs else "x"
    grid, given = f"cdiv({first}.numel(), 256), 256", "..."
    for item in source.functions("host").values():
        if found := _LAUNCH.search(item.body):
            kernel, given = found["kernel"], " ".join(found["given"].split())
            grid = ", ".join(" ".join(part.split()) for part in found["grid"].split(",")[:2])
            break
    lines = (f"out = torch.empty_like({first})", f"{kernel}[{grid}]({given})", "return out")
    error.hint = "say it in comments of the file, a line each, with the task's names: " + "; ".join(
        f"// hipwright: {line}" for line in lines
    )
    return error


def _of_source(error: ProgramError, program: str, text: str) -> ProgramError:
    """An error of the converted program with the line of the file that the program's line came from, where one did."""
    message = re.sub(r"^line \d+: ", "", error.message)
    return ProgramError(message, source_line(error.line, program, text), hint=error.hint)


def source_line(line: int, program: str, text: str) -> int:
    """The line of a source that a line of its program came from; 0 where none, or several, read the same."""
    lines = program.splitlines()
    if not 0 < line <= len(lines):
        return 0
    wanted = _bare(lines[line - 1])
    same = [number for number, one in enumerate(text.splitlines(), 1) if _bare(one) == wanted]
    return same[0] if len(same) == 1 else 0


def _bare(line: str) -> str:
    return "".join(line.split()).replace('extern"C"', "")
