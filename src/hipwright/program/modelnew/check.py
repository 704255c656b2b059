"""The form of a candidate file, and the static rules of ModelNew files. Torch-free; nothing is executed.

Rules are named after the rows of docs/modelnew.md. A clear attempt to cheat is refused (status "hack", with its line);
what an honest file may also do is a warning in the verdict's checks, and the run-time checks decide. Library operators
are never refused here: coverage counts them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hipwright import syntax
from hipwright.errors import CandidateError, ProgramError
from hipwright.program.modelnew.names import (
    ASSIGNABLE,
    BUILD_VARIABLES,
    CALLS,
    FRAME_ATTRIBUTES,
    MODULES,
    WARNED_CALLS,
    WARNED_MODULES,
    longest,
)
from hipwright.program.modelnew.native import native_findings
from hipwright.program.modelnew.surroundings import sniffing

MAX_TEXT = 2_000_000  # characters


@dataclass(frozen=True)
class Finding:
    """One violation of a rule. rule: its name, e.g. "B3"; refused: False for a warning."""

    rule: str
    line: int
    message: str
    refused: bool = True

    def describe(self) -> str:
        """The finding in words."""
        return f"line {self.line}: {self.message} ({self.rule})"


def form_of(text: str) -> str:
    """The form of a candidate: "modelnew" if it defines a class ModelNew at its top level, else "program"."""
    try:
        tree = syntax.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        lines = text.splitlines()
        return "modelnew" if any(line.startswith("class ModelNew") for line in lines) else "program"
    return "modelnew" if _model_new(tree) is not None else "program"


def vet(text: str) -> list[str]:
    """Checks a ModelNew file; returns its warnings, in words, for a verdict's checks.

    Raises ProgramError when it is not Python or has no class ModelNew, CandidateError(status="hack") when it is
    refused.
    """
    found = check(text)
    refused = [f for f in found if f.refused]
    if refused:
        first = refused[0]
        raise CandidateError(
            first.describe(),
            status="hack",
            stage="lint",
            hint="docs/modelnew.md lists what a ModelNew file may not do, and why",
            evidence={"line": first.line, "rule": first.rule, "all": [f.describe() for f in refused[:10]]},
        )
    return [f.describe() for f in found]


def check(text: str) -> tuple[Finding, ...]:
    """Every finding, refusals first, each group in the order of lines. Raises ProgramError when it is no candidate."""
    tree = parse_model_new(text)
    walk = _Rules(tree)
    told = (Finding(*found) for found in sniffing(tree, walk.names, walk.own))
    found = dict.fromkeys((*walk.findings(), *told, *_native(tree)))
    return tuple(sorted(found, key=lambda f: (not f.refused, f.line, f.rule)))


def parse_model_new(text: str) -> ast.Module:
    """The file's syntax tree. Raises ProgramError when it is not Python or defines no class ModelNew."""
    if len(text) > MAX_TEXT:
        raise ProgramError(f"the file has {len(text)} characters; the limit is {MAX_TEXT}")
    try:
        tree = syntax.parse(text)
    except SyntaxError as error:
        raise ProgramError(f"syntax error: {error.msg}", error.lineno or 0) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProgramError(f"this is not Python text: {error or 'nested too deeply'}") from None
    if _model_new(tree) is None:
        raise ProgramError("the file has no class ModelNew; a candidate defines class ModelNew(nn.Module)")
    return tree


def _model_new(tree: ast.Module) -> ast.ClassDef | None:
    return next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ModelNew"), None)


def imports(tree: ast.Module) -> dict[str, str]:
    """Local name -> dotted path of what it was imported as."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            lead = "." * node.level + (node.module or "")
            names |= {a.asname or a.name: f"{lead}.{a.name}" for a in node.names}
    return names


def dotted_path(node: ast.expr, names: dict[str, str]) -> str:
    """The full dotted path of a chain that starts at an import or a builtin; "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def _native(tree: ast.Module) -> Iterator[Finding]:
    """Findings in C++ and CUDA text: in every string literal that looks like source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            for rule, offset, message, refused in native_findings(node.value):
                yield Finding(rule, node.lineno + offset, message, refused)


class _Rules:
    """The rules on Python code, in one walk over the tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.names = imports(tree)
        self.own = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}

    def findings(self) -> Iterator[Finding]:
        """All findings, in no particular order."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Import() | ast.ImportFrom():
                    yield from self.imported(node)
                case ast.Call():
                    yield from self.called(node)
                case ast.Attribute():
                    yield from self.attribute(node)
                case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Delete():
                    yield from self.assigned(node)
                case ast.ClassDef():
                    yield from self.subclassed(node)
                case ast.Subscript():
                    yield from self.environment(node)
                case _:
                    pass
        yield from self.fallbacks()

    def imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
        """Checks imports: modules that no kernel needs, and the reference itself."""
        if isinstance(node, ast.ImportFrom):
            if node.level:
                yield Finding("B4", node.lineno, "a relative import: a candidate is one file")
            paths = [f"{node.module or ''}.{a.name}" for a in node.names]
            if any(a.name == "Model" for a in node.names):
                yield Finding("B4", node.lineno, "imports the reference Model")
        else:
            paths = [a.name for a in node.names]
        for path in paths:
            if hit := longest(path, MODULES):
                yield Finding(MODULES[hit][0], node.lineno, f"imports {hit}: {MODULES[hit][1]}")
            elif hit := longest(path, WARNED_MODULES):
                yield Finding(WARNED_MODULES[hit][0], node.lineno, f"imports {hit}: {WARNED_MODULES[hit][1]}", False)

    def called(self, node: ast.Call) -> Iterator[Finding]:
        """Checks calls by full name, `open` by its mode, `setattr` and `getattr` by the attribute."""
        path = dotted_path(node.func, self.names)
        if path in ("open", "io.open", "os.open"):
            yield self.opened(node, path)
        elif path in ("setattr", "delattr") and node.args:
            owner = self.outside(node.args[0])
            if owner:
                yield Finding("D5", node.lineno, f"{path} on {owner}, which is not the candidate's own")
        elif path in ("os.getenv", "os.environ.get", "os.environ.setdefault", "os.putenv", "os.environ.pop"):
            yield from self.variable(node.args[0] if node.args else node, node, write="set" in path or "put" in path)
        elif path in self.own:
            return
        elif hit := longest(path, CALLS):
            yield Finding(CALLS[hit][0], node.lineno, f"calls {path}: {CALLS[hit][1]}")
        elif hit := longest(path, WARNED_CALLS):
            yield Finding(WARNED_CALLS[hit][0], node.lineno, f"calls {path}: {WARNED_CALLS[hit][1]}", False)

    def opened(self, node: ast.Call, path: str) -> Finding:
        """Checks `open`: reading is refused; writing (sources for `load`) is a warning, since the sandbox decides."""
        mode = node.args[1] if len(node.args) > 1 else next((k.value for k in node.keywords if k.arg == "mode"), None)
        writes = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and mode.value[:1] in "wax"
        if writes and path != "os.open":
            return Finding("E7", node.lineno, "writes a file; only the private /tmp of the build can be written", False)
        return Finding("E7", node.lineno, "reads a file: a candidate sees its inputs and nothing else")

    def attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        """Checks attributes: frames, closures and the interpreter's tables, even where they are not called."""
        if node.attr in FRAME_ATTRIBUTES:
            yield Finding("E1", node.lineno, f".{node.attr} looks into the interpreter, not at the task")
        path = dotted_path(node, self.names)
        if path in ("torch.compile", "sys._getframe", "sys.modules") or path.startswith(
            ("torch._dynamo.", "torch._inductor.")
        ):
            rule = "E1" if path.startswith("sys") else "B5"
            why = (
                "the stack and the modules are not the candidate's"
                if rule == "E1"
                else "the compiler would do the work"
            )
            yield Finding(rule, node.lineno, f"uses {path}: {why}")

    def assigned(self, node: ast.stmt) -> Iterator[Finding]:
        """Checks assignments to attributes of torch, timers or Python."""
        targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
        for target in [t for root in targets if root is not None for t in ast.walk(root)]:
            if isinstance(target, ast.Attribute) and isinstance(target.ctx, (ast.Store, ast.Del)):
                path = dotted_path(target, self.names)
                owner = self.outside(target.value)
                if not owner or longest(path, ASSIGNABLE):
                    continue
                flag = path.startswith("torch.backends.")
                why = "a global flag of the library" if flag else f"{owner} is not the candidate's own"
                yield Finding("B7" if flag else "D5", node.lineno, f"assigns {path}: {why}")
            elif isinstance(target, ast.Subscript) and isinstance(target.ctx, (ast.Store, ast.Del)):
                owner = dotted_path(target.value, self.names)
                if (
                    owner.startswith("sys.")
                    or owner in ("__builtins__", "builtins.__dict__")
                    or (owner.endswith("__dict__") and self.outside(target.value))
                ):
                    yield Finding("D5", node.lineno, f"changes {owner}")

    def outside(self, node: ast.expr) -> str:
        """The imported module or builtin at which a chain starts, "" for the file's own names."""
        path = dotted_path(node, self.names)
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if not path or not isinstance(root, ast.Name):
            return ""
        if root.id in self.names or root.id in ("__builtins__", "builtins"):
            return path
        return ""

    def subclassed(self, node: ast.ClassDef) -> Iterator[Finding]:
        """Checks base classes: the reference, and tensor subclasses that could defer computation."""
        for base in node.bases:
            path = dotted_path(base, self.names)
            if path.split(".")[-1] == "Model":
                if "Model" not in self.own:
                    yield Finding("B4", node.lineno, f"{node.name} subclasses the reference Model")
                else:
                    yield Finding(
                        "B1",
                        node.lineno,
                        f"{node.name} subclasses a copy of Model: its operators are the library's",
                        False,
                    )
            if path in (
                "torch.Tensor",
                "torch.nn.Parameter",
                "torch.utils._python_dispatch.TorchDispatchMode",
                "torch.overrides.TorchFunctionMode",
            ):
                yield Finding("D3", node.lineno, f"{node.name} subclasses {path}: outputs are plain tensors")
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name in ("__torch_function__", "__torch_dispatch__"):
                yield Finding("D3", item.lineno, f"{item.name} would compute at another time than the call")

    def environment(self, node: ast.Subscript) -> Iterator[Finding]:
        """Checks os.environ[...]: variables of the build are allowed, others could detect the verifier."""
        if dotted_path(node.value, self.names) == "os.environ":
            yield from self.variable(node.slice, node, write=isinstance(node.ctx, ast.Store))

    def variable(self, name: ast.expr, node: ast.expr, *, write: bool) -> Iterator[Finding]:
        """Checks one environment variable."""
        known = str(name.value) if isinstance(name, ast.Constant) else ""
        if known in BUILD_VARIABLES:
            return
        if write:
            yield Finding("E4", node.lineno, f"sets the environment variable {known or '(computed)'}", False)
        else:
            yield Finding("E4", node.lineno, f"reads the environment variable {known or '(computed)'}")

    # ------------------------------------------------------------ fallbacks

    def fallbacks(self) -> Iterator[Finding]:
        """Checks try ... except with a computation in the handler: refused where a call of the model runs it, else a
        warning."""
        for function, running in self._functions():
            for node in ast.walk(function):
                if not isinstance(node, (ast.Try, ast.TryStar)):
                    continue
                for handler in node.handlers:
                    if isinstance(handler.body[-1], ast.Raise):
                        continue
                    if running and self._computes(handler):
                        yield Finding("B3", handler.lineno, "falls back to other code when its own fails")
                    else:
                        yield Finding("B3", handler.lineno, "goes on after an error of its own", False)

    def _functions(self) -> Iterator[tuple[ast.AST, bool]]:
        """(code, whether a call of the model may run it); the top level and __init__ run before calls."""
        top = [n for n in self.tree.body if not isinstance(n, (ast.FunctionDef, ast.ClassDef))]
        yield ast.Module(body=top, type_ignores=[]), False
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node, node.name != "__init__" and not _builds(node, self.names)

    def _computes(self, handler: ast.ExceptHandler) -> bool:
        """Whether a handler computes: returns a value, or calls torch or the file's own code."""
        for node in ast.walk(handler):
            if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
                return True
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                return True
            if isinstance(node, ast.Call):
                path = dotted_path(node.func, self.names)
                if path.startswith("torch.") and not path.startswith(("torch.cuda.", "torch.utils.")):
                    return True
                if path.split(".")[0] in (self.own | {"self"}) and path:
                    return True
        return False


def _builds(function: ast.AST, names: dict[str, str]) -> bool:
    """Whether a function builds an extension."""
    calls = (n for n in ast.walk(function) if isinstance(n, ast.Call))
    return any(dotted_path(n.func, names).split(".")[-1] in ("load_inline", "load") for n in calls)
