"""Programs with a backward: the task that asks for gradients, the program, and the form in which it is verified.

    gradient_task(source, ...)      task text    a task whose forward returns outputs and gradients, by autograd
    program(graph, tangents)        Program      forward and backward, from the captured graph of that task
    inlined(program, tangents)      Program      both as one forward, statement by statement: what is verified
Torch-free.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import Any

from hipwright import syntax
from hipwright.capture.graph import Graph
from hipwright.engine import write
from hipwright.engine.knobs import Value
from hipwright.engine.split import OUT, split
from hipwright.errors import BadInput, ProgramError
from hipwright.program import merge
from hipwright.program.parse import parse
from hipwright.records import Program, TensorSpec
from hipwright.tensors import FLOATS

_BASE, _INPUTS = "_Forward", "_get_inputs"


def gradient_task(source: str, inputs: Sequence[Any], outputs: Sequence[TensorSpec]) -> tuple[str, list[str]]:
    """(a task's text, the parameters of its forward that hold the outputs' gradients).

    inputs: the task's inputs with specs for tensors; outputs: a spec for each output leaf. The task's forward takes
    the inputs and those gradients, and returns {"out": outputs, "x": gradient, "self.weight": gradient, ...}.
    Raises BadInput for a task that has nothing to differentiate.
    """
    tree = syntax.parse(source)
    names = _parameters(tree)[: len(inputs)]
    tangents = [f"grad{i}" for i, spec in enumerate(s for s in outputs if s.dtype in FLOATS)]
    floating = [path for name, value in zip(names, inputs, strict=True) for path in _floating(value, name)]
    if not tangents or OUT in floating or set(tangents) & set(names):
        raise BadInput("no output has a gradient, or an input has the name of what is returned beside it")
    body = [_Renamed().visit(node) for node in tree.body if not _groups(node)]
    text = ast.unparse(ast.fix_missing_locations(ast.Module(body=body, type_ignores=[])))
    made = [f"torch.randn({list(s.shape)}).to(torch.{s.dtype})" for s in outputs if s.dtype in FLOATS]
    tail = _TAIL.format(
        base=_BASE,
        get=_INPUTS,
        names=", ".join(names),
        tangents=", ".join(tangents),
        floating=repr(floating),
        made=", ".join(made),
    )
    return text + tail, tangents


_TAIL = '''


from torch.utils import _pytree as _tree


class Model({base}):
    """Outputs, and the gradients of inputs and parameters for given gradients of the outputs."""

    def forward(self, {names}, {tangents}):
        leaves, nesting = _tree.tree_flatten([{names}])
        wanted = [isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for leaf in leaves]
        with torch.enable_grad():
            leaves = [leaf.detach().requires_grad_() if w else leaf for leaf, w in zip(leaves, wanted)]
            out = super().forward(*_tree.tree_unflatten(leaves, nesting))
        of = dict(zip({floating}, [leaf for leaf, w in zip(leaves, wanted) if w]))
        of.update({{"self." + name: p for name, p in self.named_parameters() if p.requires_grad}})
        outs = [t for t in _tree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.is_floating_point()]
        found = torch.autograd.grad(outs, list(of.values()), [{tangents}], materialize_grads=True)
        out = _tree.tree_map_only(torch.Tensor, lambda t: t.detach(), out)
        return {{"out": out, **dict(zip(of, found))}}


def get_inputs():
    return [*{get}(), {made}]
'''


def program(graph: Graph, tangents: Sequence[str], choices: Mapping[str, Mapping[str, Value]] | None = None) -> Program:
    """forward and backward for the captured graph of a gradient task.

    choices: the engine's, under "forward" and "backward"; backward's kernels and knobs end with `_back`.
    """
    forward, backward = split(graph, tangents)
    chosen = choices or {}
    each = ((forward, "forward"), (backward, "backward"))  # training changes the parameters: nothing is packed
    first, second = (write(part, {**chosen.get(name, {}), "prepare": False}) for part, name in each)
    parts = [
        merge.rename_apart(parse(first.text), first.knobs, ""),
        merge.rename_apart(parse(second.text), second.knobs, "_back"),
    ]
    late = parts[1].functions["forward"]
    late.name = "backward"
    made = Program(text=merge.join(parts, [parts[0].functions["forward"], late]))
    parse(made.text)  # what is written must be a program
    return made


def inlined(given: Program, tangents: Sequence[str]) -> Program:
    """The same kernels and statements as one forward that returns what the gradient task does.

    Raises ProgramError for functions with several returns, or gradients that are not returned by name.
    """
    parsed = parse(given.text)
    part = merge.rename_apart(parsed, given.knobs, "")
    forward, backward = (copy.deepcopy(part.functions[name]) for name in ("forward", "backward"))
    outputs, saved = _pair(forward)
    gradients = _ended(backward)
    if not isinstance(gradients, ast.Dict):
        raise ProgramError('backward returns its gradients by name: {"x": gx, "self.weight": gw}')
    # backward's own names come after forward's last statement, and `out_` is the only one that is read after it
    own = {a.arg: f"{a.arg}_" for a in backward.args.args[1:]}
    renamed = merge.NameRewriter(own)
    body = [renamed.visit(node) for node in backward.body[:-1]]
    lines = [*forward.body[:-1], _assign(own["saved"], saved), _assign("out_", outputs)]
    lines += [_assign(own["grads"], _nested(outputs, list(tangents))), *body]
    result = ast.Dict(
        [ast.Constant(OUT), *gradients.keys],
        [ast.Name("out_", ast.Load()), *(renamed.visit(v) for v in gradients.values)],
    )
    forward.body = [*lines, ast.Return(result)]
    forward.args.args += [ast.arg(name) for name in tangents]
    functions = [part.functions[name] for name in ("prepare",) if name in part.functions]
    return Program(text=merge.join([part], [*functions, ast.fix_missing_locations(forward)]))


def _pair(function: ast.FunctionDef) -> tuple[ast.expr, ast.expr]:
    value = _ended(function)
    assert isinstance(value, ast.Tuple)  # the parser has seen to it
    return value.elts[0], value.elts[1]


def _ended(function: ast.FunctionDef) -> ast.expr:
    """The value of a function's only return, its last statement."""
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    last = function.body[-1]
    if len(returns) != 1 or not isinstance(last, ast.Return) or last.value is None:
        raise ProgramError(f"{function.name} has to end with its only return to be verified")
    return last.value


def _assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _nested(outputs: ast.expr, names: list[str]) -> ast.expr:
    """The gradients in the nesting of the outputs."""
    if isinstance(outputs, (ast.Tuple, ast.List)):
        return type(outputs)([_nested(item, names) for item in outputs.elts], ast.Load())
    if not names:
        raise ProgramError("forward returns more outputs than there are gradients of them")
    return ast.Name(names.pop(0), ast.Load())


# ---------------------------------------------------------------- the task's text


class _Renamed(ast.NodeTransformer):
    """Model and get_inputs make room for those of the gradient task."""

    names = {"Model": _BASE, "get_inputs": _INPUTS}  # noqa: RUF012 - a table

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """class Model."""
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """get_inputs itself; a method of that name would be another."""
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """super(Model, self), calls of get_inputs."""
        node.id = self.names.get(node.id, node.id)
        return node


def _groups(node: ast.stmt) -> bool:
    """Further inputs have no gradients beside them."""
    return isinstance(node, ast.FunctionDef) and node.name == "get_input_groups"


def _parameters(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward":
                    if item.args.vararg or item.args.kwonlyargs:
                        raise BadInput("the forward of a task for training takes plain parameters")
                    return [a.arg for a in item.args.args][1:]
    raise BadInput("the task's Model has no forward of its own")


def _floating(value: Any, path: str) -> list[str]:
    """The paths of an input's floating tensors, in the order of torch's pytrees."""
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in _floating(item, f"{path}[{key!r}]")]
    if isinstance(value, (list, tuple)):
        return [found for k, item in enumerate(value) for found in _floating(item, f"{path}[{k}]")]
    return [path] if getattr(value, "dtype", "") in FLOATS and getattr(value, "shape", None) is not None else []
