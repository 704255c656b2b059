"""BackendBench's operator traces: text files of "Operator: aten.add.Tensor" and "cnt: 4, ((T([5, 5], f32), 2), {})".

A task is an operator: `torch.ops.aten.add.Tensor` on the tensors of its argument lists. Lists that differ in their
plain arguments are different functions; those that are alike most often are the task, its first the `get_inputs`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from hipwright import syntax
from hipwright.evaluation.formats.answers import by_last_name, guarded_answer, model_new
from hipwright.evaluation.formats.base import BenchTask, CandidateFile, FormatRule, TaskFormat
from hipwright.evaluation.formats.kernelbench import natural, python_files
from hipwright.evaluation.formats.read import Malformed, below, guarded, text_of

GROUPS = 8
OPERATOR, COUNT = "Operator: ", re.compile(r"cnt: (\d+), (.*)")
_NAME = re.compile(r"aten\.([a-z_][a-z0-9_]*)\.([a-zA-Z_][a-zA-Z0-9_]*)")
_FLOATS = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "c64": "complex64"}
_INTEGERS = {"i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8"}
_PLAIN = (int, float, str, bool, type(None))


class BackendBenchFormat(TaskFormat):
    """The loader of BackendBench's trace files. A task's category is its file's name."""

    name = "backendbench"
    title = "BackendBench"
    layout = "*.txt with lines `Operator: aten.NAME.OVERLOAD` and `cnt: N, ((...), {...})`"
    no_training = ""
    rule = FormatRule(
        tolerance="allclose with the operator's own result, atol and rtol 1e-2",
        timing="speedup over the operator, geometric mean over its argument lists",
        source="https://github.com/meta-pytorch/BackendBench",
        atol=1e-2,
        rtol=1e-2,
    )

    def detect(self, folder: Path) -> bool:
        """Whether a text file begins with an operator."""
        return any(_is_trace(path) for path in folder.glob("*.txt"))

    def load(self, folder: Path) -> Iterable[BenchTask]:
        """The operators of every file, named FILE/NAME__OVERLOAD."""
        for path in sorted(folder.glob("*.txt"), key=lambda path: natural(path.stem)):
            if not _is_trace(path):
                continue
            try:
                operators = _operators(path, folder)
            except Malformed as error:
                yield BenchTask(path.stem, path, category=path.stem, problem=str(error), rule=self.rule)
                continue
            for operator, lines in operators.items():
                short = operator.removeprefix("aten.").replace(".", "__")
                name = f"{path.stem}/{re.sub(r'[^A-Za-z0-9_]', '_', short)[:100]}"
                made = partial(self._task, folder, path, name, operator, lines)
                yield guarded(made, name, path, category=path.stem, rule=self.rule)

    def answers(self, folder: Path, tasks: Sequence[BenchTask]) -> Iterable[CandidateFile]:
        """OP/OP_implementation*.py with `OP_kernel_impl`, below the folder or its generated_kernels.

        OP: NAME__OVERLOAD.
        """
        place = folder / "generated_kernels" if (folder / "generated_kernels").is_dir() else folder
        for name, task in by_last_name(tasks).items():
            for path in python_files(place / name):
                if path.stem.startswith(name):
                    yield guarded_answer(partial(_implementation, task, name, path, folder), task.name, path)

    def _task(self, root: Path, path: Path, name: str, operator: str, lines: list[tuple[int, str]]) -> BenchTask:
        where = below(path, root)
        if not _NAME.fullmatch(operator):
            raise Malformed(f"{where}: Operator: {operator[:60]!r} is not aten.NAME.OVERLOAD")
        if not lines:
            raise Malformed(f"{where}: {operator}: no cnt line")
        alike: dict[str, list[list[str]]] = defaultdict(list)
        for number, line in lines:
            call, draws = _call(line, f"{where} line {number}")
            if draws not in alike[call]:
                alike[call].append(draws)
        call = max(alike, key=lambda one: len(alike[one]))
        if not alike[call][0]:
            raise Malformed(f"{where}: {operator}: its arguments have no tensor")
        others = sum(map(len, alike.values())) - len(alike[call])
        notes = (f"{others} argument lists with other plain arguments are not judged",) if others else ()
        text = _text(operator, call, alike[call])
        return BenchTask(name, path, category=path.stem, text=text, notes=notes, rule=self.rule)


BACKENDBENCH = BackendBenchFormat()


def _implementation(task: BenchTask, name: str, path: Path, folder: Path) -> str:
    """The ModelNew file of an implementation. Raises Malformed."""
    return model_new(task, text_of(path, folder), f"{name}_kernel_impl", below(path, folder))


def _text(operator: str, call: str, draws: list[list[str]]) -> str:
    names = ", ".join(f"x{index}" for index in range(len(draws[0])))
    first, *others = (f"[{', '.join(one)}]" for one in draws)
    lines = [
        "import torch",
        "",
        "",
        "class Model(torch.nn.Module):",
        f"    def forward(self, {names}):",
        f"        return torch.ops.{operator}({call})",
        "",
        "",
        "def get_inputs():",
        f"    return {first}",
    ]
    if others:
        groups = "".join(f"        {one},\n" for one in others[:GROUPS])
        lines += ["", "", "def get_input_groups():", f"    return [\n{groups}    ]"]
    return "\n".join(lines) + "\n"


def _call(line: str, where: str) -> tuple[str, list[str]]:
    """(the arguments as Python text with tensors named x0, x1, ..., the draw of each tensor). Raises Malformed."""
    try:
        tree = syntax.parse(line.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Malformed(f"{where}: arguments: {error}") from None
    if not (isinstance(tree, ast.Tuple) and len(tree.elts) == 2 and isinstance(tree.elts[0], ast.Tuple)):
        raise Malformed(f"{where}: arguments: not ((...), {{...}})")
    named = tree.elts[1]
    if not isinstance(named, ast.Dict):
        raise Malformed(f"{where}: arguments: no {{...}} of keywords")
    draws: list[str] = []
    parts = [_argument(one, draws, where) for one in tree.elts[0].elts]
    for key, value in zip(named.keys, named.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier()):
            raise Malformed(f"{where}: arguments: a keyword that is no name")
        parts.append(f"{key.value}={_argument(value, draws, where)}")
    return ", ".join(parts), draws


def _argument(node: ast.expr, draws: list[str], where: str) -> str:
    match node:
        case ast.Call(func=ast.Name(id="T"), args=args, keywords=[]):
            draws.append(_draw(args, where))
            return f"x{len(draws) - 1}"
        case ast.Constant(value=value) if isinstance(value, _PLAIN):
            return ast.unparse(node)
        case ast.Name(id="inf" | "nan" as name):
            return f'float("{name}")'
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float()) | ast.Name() as operand):
            return f"-{_argument(operand, draws, where)}"
        case ast.List(elts=elements):
            return f"[{', '.join(_argument(one, draws, where) for one in elements)}]"
        case ast.Tuple(elts=elements):
            return f"({''.join(_argument(one, draws, where) + ', ' for one in elements)})"
        case ast.Attribute(value=ast.Name(id="torch"), attr=attr) if attr.isidentifier():
            return f"torch.{attr}"
    raise Malformed(f"{where}: arguments: {ast.unparse(node)[:60]} is not read")


def _draw(args: list[ast.expr], where: str) -> str:
    """A tensor's draw, from T([sizes], dtype)."""
    sizes = args[0] if args else None
    if len(args) != 2 or not isinstance(sizes, ast.List) or not isinstance(args[1], ast.Name):
        raise Malformed(f"{where}: arguments: a tensor that is not T([sizes], dtype)")
    shape = [one.value for one in sizes.elts if isinstance(one, ast.Constant) and type(one.value) is int]
    if len(shape) != len(sizes.elts):
        raise Malformed(f"{where}: arguments: a size of T(...) is no whole number")
    dtype = args[1].id
    if dtype in _FLOATS:
        return f"torch.randn({shape!r}, dtype=torch.{_FLOATS[dtype]})"
    if dtype in _INTEGERS:
        return f"torch.randint(0, 2, {shape!r}, dtype=torch.{_INTEGERS[dtype]})"
    if dtype == "b8":
        return f"torch.randint(0, 2, {shape!r}).bool()"
    raise Malformed(f"{where}: arguments: {dtype} is no dtype of a task's tensors")


def _operators(path: Path, root: Path) -> Mapping[str, list[tuple[int, str]]]:
    """{operator: (number, arguments) of its lines}. Raises Malformed for a file that is no text."""
    found: dict[str, list[tuple[int, str]]] = {}
    current: list[tuple[int, str]] | None = None
    for number, line in enumerate(text_of(path, root).split("\n"), 1):
        if line.startswith(OPERATOR):
            current = found.setdefault(line.removeprefix(OPERATOR).strip(), [])
        elif line.strip() and current is not None:
            counted = COUNT.fullmatch(line.strip())
            current.append((number, counted[2] if counted else line.strip()))
    return found


def _is_trace(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(OPERATOR)) == OPERATOR.encode()
    except OSError:
        return False
