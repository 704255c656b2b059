"""Checks of an answer before parsing: host code, unknown APIs, Python with side effects.

Parser and compiler would refuse most of it too; these checks give messages with the line and the change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from hipwright.llm.answers.repair import AnswerProblem, AnswerRefused, at_line
from hipwright.program.blanking import blank
from hipwright.program.language import IMPORTS
from hipwright.targets import TARGETS
from hipwright.toolchain import device_headers

Rule = tuple[re.Pattern[str], str, str]


def _rules(*given: tuple[str, str, str]) -> tuple[Rule, ...]:
    return tuple((re.compile(pattern), message, change) for pattern, message, change in given)


# ---------------------------------------------------------------- HIP

_HEADER = re.compile(
    r"hip/hip_(?:runtime|fp16|bf16|bfloat16|vector_types|runtime_api)\.h|(?:c?(?:stdint|math|float|limits|stddef"
    r"|assert|stdio)(?:\.h)?)"
    r"|type_traits|utility|algorithm"
)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*(?:include|include_next|import|embed)[ \t]*[<\"]([^>\"\n]*)", re.MULTILINE)
_PLAN_DOES = "delete it: the plan allocates with torch.empty and launches with name[grid, block](...)"

FORBIDDEN = _rules(
    (r"\b(?:asm|__asm__|__asm)\b", "inline assembly is refused", "use plain HIP or a __builtin_amdgcn_ function"),
    (r"#[ \t]*embed\b|\.incbin\b", "a kernel reads no files", "delete the line"),
)
HOST = _rules(
    (
        r"<<<",
        "a launch with <<< >>> is host code",
        "delete the host function; launch from forward: name[grid, block](...)",
    ),
    (
        r"\bint[ \t]+main[ \t]*\(",
        "a program has no main",
        "delete main; the plan, def forward(self, ...), is what runs",
    ),
    (r"\bhipLaunchKernel(?:GGL)?\b", "{0} is host code", "launch from forward instead: name[grid, block](...)"),
    (
        r"\b(?:hip|cuda)(?:Malloc|Free|Memcpy|Memset|Stream|Event|Device|GetDevice|SetDevice|GetLast|PeekAt|Host"
        r"|Module|Func|Error|Success"
        r"|Graph|Pointer|GetError)\w*",
        "{0} is host code",
        _PLAN_DOES,
    ),
    (
        r"\bPYBIND11_MODULE\b|\bTORCH_LIBRARY\w*",
        "{0} binds an extension, and a program has none",
        "delete it; the plan launches the kernels",
    ),
    (r"\b(?:torch|at|c10|pybind11|py)::\w+", "{0} is host code", _PLAN_DOES),
    (
        r"\bstd::(?:vector|string|cout|cerr|map|thread|ofstream|ifstream|fstream|unique_ptr|system)\b",
        "{0} is host code",
        "delete it",
    ),
    (r"\b(?:system|popen|fopen|execve?|getenv|dlopen)[ \t]*\(", "{0} does not exist on a GPU", "delete it"),
)
_NO_MASK = (
    f"{{0}} with a mask is CUDA's; a wave of {TARGETS.with_wave(64)} has 64 lanes, of {TARGETS.with_wave(32)} 32",
    "write __shfl_xor(v, offset), __shfl_down(v, offset) or __ballot(p) (64 bits) without the mask, and "
    "start reductions at warpSize / 2",
)
UNKNOWN = _rules(
    (r"\b__(?:shfl|shfl_up|shfl_down|shfl_xor|ballot|any|all|match_any|match_all|reduce_\w+)_sync\b", *_NO_MASK),
    (r"\b__syncwarp[ \t]*\([ \t]*[^) \t]", "__syncwarp takes no mask in HIP", "write __syncwarp(), or __syncthreads()"),
    (
        r"\bcooperative_groups\b|\bcg::\w+|\bthis_thread_block\b|\btiled_partition\b",
        "cooperative groups ({0}) are not there",
        "use __syncthreads(), __shfl_xor(v, offset) and threadIdx",
    ),
    (
        r"\b(?:cub|hipcub|thrust|rocprim|rocthrust|rocwmma|nvcuda|wmma|cute|cutlass|ck)::\w+",
        "{0} is a library, and no library's headers are there",
        "write the reduction, scan or tile by hand: __shfl_xor within a wave, __shared__ memory within a block",
    ),
    (r"\btl\.\w+|\btriton\b", "{0} is Triton's", "write the kernel in HIP C++"),
    (
        r"\bhipTensor\w*|\bhip(?:blas|dnn|rand|fft|sparse)\w*|\bmiopen\w*|\brocblas\w*|\bcublas\w*|\bcudnn\w*|\bcurand\w*",
        "{0} does not exist in a kernel",
        "write the loop by hand, or leave the operator to torch in forward, e.g. torch.matmul",
    ),
    (r"\bhip::\w+", "{0} does not exist", "delete it; HIP's device functions have no namespace"),
    (
        r"\b__(?:ldcg|ldca|ldcs|ldlu|ldcv|stcg|stcs|stwb|stwt|nanosleep|pipeline_\w+|cvta_\w+|nv_\w+|vadd\w+|dp4a"
        r"|dp2a\w*)\b|\bcuda::\w+|\bld_global\w*",
        "{0} exists on NVIDIA only",
        "use a plain load, store or operator",
    ),
    (
        r"\bhip[A-Z]\w*(?=[ \t]*[(<])",
        "{0} does not exist in a kernel",
        "delete it; only HIP's device functions are there",
    ),
    (r"\bcuda[A-Z]\w*", "{0} is CUDA's host API", _PLAN_DOES),
)


@cache
def _shipped() -> frozenset[str]:
    """The device headers as sources include them."""
    return frozenset(f"hipwright/{name}.h" for name in device_headers.names())


def hip_findings(source: str, text: str, first_line: int) -> Iterator[tuple[str, AnswerProblem]]:
    """Yields (kind, problem) of HIP source, worst kind first. first_line: of the source in the program's text."""
    code = blank(source)
    for found in _INCLUDE.finditer(_without_comments(source, code)):
        line = first_line + source.count("\n", 0, found.start(1))
        name = found[1].strip()
        if name.startswith(("/", "~")) or ".." in name.split("/"):
            yield "forbidden", at_line(text, line, "an #include must not leave HIP's own headers", "delete the line")
        elif not (_HEADER.fullmatch(name) or name in _shipped()):
            host = name.startswith(
                ("torch/", "ATen/", "c10/", "pybind11", "iostream", "vector", "string", "chrono", "fstream", "cstdlib")
            )
            yield (
                "host_code" if host else "unknown_api",
                at_line(
                    text,
                    line,
                    f"the header {_short(name)} is not there",
                    "delete the line and what needs it; <hip/hip_runtime.h> holds the device functions, half and "
                    "bfloat16 types",
                ),
            )
    for kind, rules in (("forbidden", FORBIDDEN), ("host_code", HOST), ("unknown_api", UNKNOWN)):
        for pattern, message, change in rules:
            for match in pattern.finditer(code):
                line = first_line + code.count("\n", 0, match.start())
                yield kind, at_line(text, line, message.format(_short(match.group().rstrip("( \t"))), change)


def _without_comments(source: str, code: str) -> str:
    """Blanks the lines that `blank` empties: removes directives in comments, keeps names in quotes."""
    pairs = zip(source.split("\n"), code.split("\n"), strict=True)
    return "\n".join(a if b.lstrip().startswith("#") else " " * len(a) for a, b in pairs)


def _short(name: str) -> str:
    plain = "".join(c for c in name if c.isprintable() and c != "`")
    return plain if len(plain) <= 60 else plain[:57] + "..."


# ---------------------------------------------------------------- Python

_ACTS = frozenset(
    (
        "eval",
        "exec",
        "open",
        "compile",
        "__import__",
        "input",
        "breakpoint",
        "globals",
        "locals",
        "vars",
        "getattr",
        "setattr",
        "delattr",
        "exit",
        "quit",
    )
)
_MODULES = frozenset(
    (
        "os",
        "sys",
        "subprocess",
        "shutil",
        "socket",
        "ctypes",
        "pathlib",
        "importlib",
        "requests",
        "urllib",
        "pickle",
        "builtins",
        "multiprocessing",
        "threading",
        "signal",
        "tempfile",
        "io",
        "glob",
        "inspect",
        "gc",
        "atexit",
        "platform",
        "http",
        "asyncio",
        "marshal",
        "code",
    )
)
_ABSENT = frozenset(
    (
        "triton",
        "tl",
        "cupy",
        "cp",
        "numba",
        "hip",
        "pyhip",
        "hiprtc",
        "jax",
        "cuda",
        "tilelang",
        "tvm",
        "cutlass",
        "np",
        "numpy",
    )
)
_LOADERS = frozenset(("load_inline", "load", "CUDAExtension", "CppExtension", "BuildExtension"))
_ACTS_FIX = "delete it: a program is parsed and never executed; it holds HIP, knobs and the plan only"


def python_findings(tree: ast.Module, text: str) -> Iterator[tuple[str, AnswerProblem]]:
    """(kind, problem) of the Python around the kernels."""
    own = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    own |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    for node in ast.walk(tree):
        found = _import(node) if isinstance(node, (ast.Import, ast.ImportFrom)) else _expression(node, own)
        if found:
            kind, message, change = found
            yield kind, at_line(text, getattr(node, "lineno", 1), message, change)


def _import(node: ast.Import | ast.ImportFrom) -> tuple[str, str, str] | None:
    if ast.unparse(node) in IMPORTS:
        return None
    modules = [node.module or "."] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
    roots = {m.split(".")[0] for m in modules}
    if roots & _MODULES:
        return "unsafe_python", f"import of {_short(min(roots & _MODULES))} is refused", _ACTS_FIX
    if any("cpp_extension" in m for m in modules):
        return "host_code", "load_inline builds an extension, and a program has none", _PLAN_DOES_PYTHON
    if roots & _ABSENT:
        return (
            "unknown_api",
            f"{_short(min(roots & _ABSENT))} is not there",
            "delete the import; write the kernel in HIP C++ in HIP = r'''...'''",
        )
    return (
        "not_a_program",
        f"the import of {_short(modules[0])} is not allowed",
        f"delete it; allowed are {', '.join(IMPORTS)}",
    )


_PLAN_DOES_PYTHON = (
    "put the kernels into HIP = r'''...''' and launch them in def forward(self, ...): name[grid, block](...)"
)


def _expression(node: ast.AST, own: set[str]) -> tuple[str, str, str] | None:
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
        if (name in _LOADERS and name != "load") or (name == "load" and "sources" in {k.arg for k in node.keywords}):
            return "host_code", f"{name} builds an extension, and a program has none", _PLAN_DOES_PYTHON
        if isinstance(node.func, ast.Name) and name in _ACTS:
            return "unsafe_python", f"{name}(...) is refused", _ACTS_FIX
    if isinstance(node, ast.Attribute):
        return _attribute(node, own)
    if isinstance(node, ast.Name) and node.id.startswith("__") and node.id.endswith("__"):
        return "unsafe_python", f"the name {_short(node.id)} is refused", _ACTS_FIX
    return None


def _attribute(node: ast.Attribute, own: set[str]) -> tuple[str, str, str] | None:
    if node.attr.startswith("__") and node.attr != "__init__":
        return "unsafe_python", f"the attribute {_short(node.attr)} is refused", _ACTS_FIX
    if not isinstance(node.value, ast.Name) or node.value.id in own:  # a local called `io` is no module
        return None
    root = node.value.id
    if root in _MODULES:
        return "unsafe_python", f"{root}.{_short(node.attr)} is refused", _ACTS_FIX
    if root in _ABSENT:
        return (
            "unknown_api",
            f"{root}.{_short(node.attr)} does not exist in a plan",
            "use torch operators and your own HIP kernels",
        )
    if root == "torch" and node.attr in ("hip", "cuda", "ops_hip", "rocm"):
        return (
            "unknown_api",
            f"torch.{node.attr} does not exist in a plan",
            "delete it; launch kernels with name[grid, block](...)",
        )
    return None


def check(kinds: Iterator[tuple[str, AnswerProblem]]) -> None:
    """Raises AnswerRefused with all problems of the worst kind found."""
    order = ("unsafe_python", "forbidden", "host_code", "unknown_api", "not_a_program")
    found: dict[str, dict[int, AnswerProblem]] = {}
    for kind, problem in kinds:
        found.setdefault(kind, {}).setdefault(problem.line, problem)
    for kind in order:
        if kind in found:
            raise AnswerRefused(kind, *sorted(found[kind].values(), key=lambda p: p.line))
