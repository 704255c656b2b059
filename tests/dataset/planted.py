"""Planted near copies of a task: edits that keep what it computes.

Each way is a function from the text of a task file to another text, or None where there is nothing to change.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

INPUT_FUNCTIONS = ("get_inputs", "get_init_inputs")
METHODS = frozenset(
    {
        "relu",
        "sigmoid",
        "tanh",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "abs",
        "neg",
        "softmax",
        "log_softmax",
        "sum",
        "mean",
        "amax",
        "amin",
        "var",
        "cumsum",
        "clamp",
        "square",
        "logsumexp",
        "flip",
        "tril",
        "triu",
        "argmax",
        "gather",
        "matmul",
        "pow",
        "transpose",
        "permute",
        "unsqueeze",
        "squeeze",
        "flatten",
        "masked_fill",
    }
)
FUNCTIONS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.MatMult: "matmul"}


def _parts(tree: ast.Module) -> tuple[ast.ClassDef, ast.FunctionDef]:
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    return model, next(f for f in model.body if isinstance(f, ast.FunctionDef) and f.name == "forward")


def _text(tree: ast.Module) -> str:
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _arguments(forward: ast.FunctionDef) -> list[str]:
    return [a.arg for a in forward.args.args if a.arg != "self"]


def renamed(source: str) -> str | None:
    """Rename the local names and arguments of forward."""
    tree = ast.parse(source)
    forward = _parts(tree)[1]
    names = set(_arguments(forward))
    names |= {n.id for n in ast.walk(forward) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    new = {name: f"value_{place}_of" for place, name in enumerate(sorted(names))}
    for node in ast.walk(forward):
        if isinstance(node, ast.Name) and node.id in new:
            node.id = new[node.id]
        elif isinstance(node, ast.arg) and node.arg in new:
            node.arg = new[node.arg]
    return _text(tree)


def reclassed(source: str) -> str | None:
    """Rename the class and derive Model from it."""
    tree = ast.parse(source)
    model = _parts(tree)[0]
    model.name = "Transformation"
    for node in ast.walk(model):
        if isinstance(node, ast.Name) and node.id == "Model":
            node.id = "Transformation"
    at = tree.body.index(model) + 1
    tree.body[at:at] = ast.parse("class Model(Transformation):\n    pass\n").body
    return _text(tree)


def commented(source: str) -> str | None:
    """Add comments, docstrings and blank lines."""
    lines: list[str] = []
    for line in source.splitlines():
        lines += [f"{line}  # step {len(lines)}"] if line.strip().startswith("return") else [line]
        if line.strip().startswith("def forward") and line.rstrip().endswith(":"):
            lines += ['        """Computes what was asked for: relu(softmax(matmul(x, y)))."""', "", "        # now"]
    return "# A task of my own, nothing to do with any other\n\n" + "\n".join(lines) + "\n"


def _scaled(source: str, factor: int, most: int) -> str | None:
    """Multiply the integers in module constants and input functions by a factor; at most the first `most`."""
    tree = ast.parse(source)
    found = []
    for top in tree.body:
        if isinstance(top, ast.Assign) or (isinstance(top, ast.FunctionDef) and top.name in INPUT_FUNCTIONS):
            found += [n for n in ast.walk(top) if isinstance(n, ast.Constant) and type(n.value) is int and n.value > 3]
    for node in found[:most]:
        node.value = int(node.value) * factor
    return _text(tree) if found else None


def resized(source: str) -> str | None:
    """Multiply every size by three."""
    return _scaled(source, 3, 99)


def rebatched(source: str) -> str | None:
    """Double the first size."""
    return _scaled(source, 2, 1)


def functional(source: str) -> str | None:
    """Write methods as functions, and functions as methods."""
    tree = ast.parse(source)
    changed = _Spelling()
    changed.visit(_parts(tree)[1])
    return _text(tree) if changed.count else None


class _Spelling(ast.NodeTransformer):
    def __init__(self) -> None:
        self.count = 0

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr not in METHODS:
            return node
        self.count += 1
        owner = function.value
        if isinstance(owner, ast.Name) and owner.id in ("torch", "F") and node.args:
            function.value = node.args.pop(0)
        elif isinstance(owner, ast.Name) and owner.id in ("self", "nn", "math"):
            self.count -= 1
        else:
            function.value = ast.Name("torch", ast.Load())
            node.args.insert(0, owner)
        return node


def operators(source: str) -> str | None:
    """Write binary operators as functions, with commutative operands swapped."""
    tree = ast.parse(source)
    changed = _Signs(set(_arguments(_parts(tree)[1])))
    changed.visit(_parts(tree)[1])
    return _text(tree) if changed.count else None


class _Signs(ast.NodeTransformer):
    def __init__(self, tensors: set[str]) -> None:
        self.tensors = tensors
        self.count = 0

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        self.generic_visit(node)
        self.tensors |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        name = FUNCTIONS.get(type(node.op))
        both = [side for side in (node.left, node.right) if isinstance(side, ast.Name) and side.id in self.tensors]
        if name is None or len(both) < 2:
            return node
        self.count += 1
        sides = [node.right, node.left] if name in ("add", "mul") else [node.left, node.right]
        return ast.Call(ast.Attribute(ast.Name("torch", ast.Load()), name, ast.Load()), sides, [])


def reordered(source: str) -> str | None:
    """Reorder independent statements of forward."""
    tree = ast.parse(source)
    forward = _parts(tree)[1]
    body, count = list(forward.body), 0
    for _ in range(len(body)):
        for place in range(len(body) - 1):
            if _independent(body[place], body[place + 1]) and _writes(body[place]) > _writes(body[place + 1]):
                body[place], body[place + 1] = body[place + 1], body[place]
                count += 1
    forward.body = body
    return _text(tree) if count else None


def _names(node: ast.AST, kind: type[ast.expr_context]) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, kind)}


def _writes(node: ast.stmt) -> list[str]:
    return sorted(_names(node, ast.Store))


def _independent(one: ast.stmt, other: ast.stmt) -> bool:
    if not (isinstance(one, ast.Assign) and isinstance(other, ast.Assign)):
        return False
    first, second = _names(one, ast.Store), _names(other, ast.Store)
    return not (first & second or first & _names(other, ast.Load) or second & _names(one, ast.Load))


def viewed(source: str) -> str | None:
    """Add views and copies without effect to every argument."""
    tree = ast.parse(source)
    forward = _parts(tree)[1]
    lines = "".join(f"{name} = {name}.view({name}.shape).contiguous().clone()\n" for name in _arguments(forward))
    at = 1 if ast.get_docstring(forward) else 0
    forward.body[at:at] = ast.parse(lines).body
    return _text(tree)


def reinitialised(source: str) -> str | None:
    """Initialise parameters and inputs with other values."""
    text = source
    for old, new in (
        ("nn.Parameter(torch.randn(", "nn.Parameter(0.01 * torch.rand("),
        ("nn.Parameter(torch.rand(", "nn.Parameter(0.3 + torch.randn("),
        ("nn.Parameter(torch.ones(", "nn.Parameter(0.5 + torch.zeros("),
        ("nn.Parameter(torch.zeros(", "nn.Parameter(-0.1 * torch.ones("),
        ("return [torch.randn(", "return [0.7 * torch.randn("),
        ("    torch.randn(", "    0.7 * torch.randn("),
    ):
        text = text.replace(old, new)
    return text if text != source else None


def wrapped(source: str) -> str | None:
    """Wrap the model in nn.Sequential, or in another module."""
    tree = ast.parse(source)
    model, forward = _parts(tree)
    given = _arguments(forward)
    made = next((f for f in model.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
    passed = ", ".join(_arguments(made)) if made else ""
    model.name = "Inner"
    for node in ast.walk(model):
        if isinstance(node, ast.Name) and node.id == "Model":
            node.id = "Inner"
    inner = f"nn.Sequential(nn.Identity(), Inner({passed}))" if len(given) == 1 else f"Inner({passed})"
    outer = f"""class Model(torch.nn.Module):
    def __init__(self{", " + passed if passed else ""}):
        super().__init__()
        self.chain = {inner}

    def forward(self, {", ".join(given)}):
        return self.chain({", ".join(given)})
"""
    at = tree.body.index(model) + 1
    tree.body[at:at] = ast.parse(outer).body
    return _text(tree)


def inlined(source: str) -> str | None:
    """Inline local names that are read once."""
    tree = ast.parse(source)
    forward = _parts(tree)[1]
    count = 0
    for statement in list(forward.body):
        if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
            continue
        name = statement.targets[0].id
        reads = [n for n in ast.walk(forward) if isinstance(n, ast.Name) and n.id == name]
        if len(reads) == 2 and name not in _arguments(forward):
            forward.body.remove(statement)
            _Inline(name, statement.value).visit(forward)
            count += 1
    return _text(tree) if count else None


class _Inline(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.value if node.id == self.name and isinstance(node.ctx, ast.Load) else node


Way = Callable[[str], str | None]
WAYS: dict[str, Way] = {
    way.__name__: way
    for way in (
        renamed,
        reclassed,
        commented,
        resized,
        rebatched,
        functional,
        operators,
        reordered,
        viewed,
        reinitialised,
        wrapped,
        inlined,
    )
}


def everything(source: str) -> str:
    """Apply several ways one after the other."""
    for name in (
        "inlined",
        "functional",
        "operators",
        "reordered",
        "viewed",
        "reinitialised",
        "rebatched",
        "renamed",
        "commented",
        "wrapped",
    ):
        source = WAYS[name](source) or source
    return source


def planted(source: str) -> dict[str, str]:
    """{way: near copy}."""
    found = {name: text for name, way in WAYS.items() if (text := way(source)) is not None}
    return {**found, "everything": everything(source)}
