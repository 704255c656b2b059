"""A module and its inputs become a graph. Runs in the task host; imports torch.

torch.export traces on fake tensors (https://docs.pytorch.org/docs/stable/export.html). Only backward
operators are decomposed (capture/backward_operators.py): others stay whole (an LSTM is one node), and mutation is made
functional. What computes gradients itself, or calls torch.vmap, is traced below autograd (joint.py).
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from hipwright.capture.asked_modes import traced_as_called
from hipwright.capture.assumptions import assumptions, slice_bounds, split_counts
from hipwright.capture.backward_operators import decompositions
from hipwright.capture.causal_masks import masks_unread
from hipwright.capture.defined_operators import narrows_gathered, operators_as_defined, writes_to_narrows
from hipwright.capture.fake_operators import lengths_as_tensors, register
from hipwright.capture.fx_nodes import Builder, access_of, calls_of, nest, same_shapes
from hipwright.capture.graph import Graph, Input, Mutation, Node
from hipwright.capture.joint import Transformed, trace, transforms, transforms_refused
from hipwright.capture.long_graphs import LONG, needs_no_decomposition
from hipwright.capture.plain_attributes import attributes_as_buffers, no_fixed_state, placed_items
from hipwright.capture.raising_checks import raising_checks_pass
from hipwright.capture.random_operators import draws_numbers, layout_guards, without_certain_draws
from hipwright.capture.recurrent_shapes import steps_unwalked
from hipwright.capture.time_limit import SECONDS, TraceTooLong, within
from hipwright.capture.value_dependent import NUMBER_HINT, UNTRACED, at_node, explained, untraced
from hipwright.errors import TaskError

Varying = Sequence[Collection[int]]
"""Of each tensor in order, the dimensions that differ between a task's own workloads."""


def capture(
    model: torch.nn.Module, args: Sequence[Any], *, long: int | None = None, varying: Varying = ()
) -> dict[str, Any]:
    """The graph of `model(*args)` as plain JSON types: shape-generic where export allows, else generic in `varying`
    dimensions, else static; where free sizes take too long, with the first dimension of each tensor free.

    long: calls from which on a graph is long (long_graphs.py); None for LONG.
    Raises TaskError ("cannot capture: why") where Python control flow depends on tensor values.
    """
    graph = traced_as_called(model, lambda: _captured(model, args, long, varying))
    return graph | placed_items(model)


def _captured(model: torch.nn.Module, args: Sequence[Any], long: int | None, varying: Varying) -> dict[str, Any]:
    """The graph as the module is found."""
    register()
    names = _parameter_names(model, len(args))
    problems: list[Exception] = []
    lifted = pytree.tree_map(_lift, tuple(args))
    generic = [(lifted, True)] if any(type(leaf) is float for leaf in pytree.tree_leaves(tuple(args))) else []
    below = _takes_gradients(model)
    attempts: list[tuple[Any, bool | Varying]] = [*([] if below else generic), (tuple(args), True)]
    attempts += [(tuple(args), varying)] if any(varying) and not below else []
    attempts.append((tuple(args), False))
    free = None  # which dimensions of each tensor; None for all
    while attempts:
        marked, how = attempts[0]
        given, dynamic = _unmarked(marked), bool(how)
        try:
            limit = SECONDS if how is True and free is None and not below else 0
            with raising_checks_pass(), masks_unread(), lengths_as_tensors(), operators_as_defined(), within(limit):
                if below:
                    return trace(model, args, names, dynamic).to_dict()
                chosen = how if not isinstance(how, bool) else free if how else 0
                exported = _export(model, given, chosen, LONG if long is None else long)
            return _Exported(exported, names, args, dynamic).graph().to_dict()
        except TraceTooLong:
            free = 1
            continue
        except Transformed:
            below, attempts = True, [(tuple(args), True), (tuple(args), False)]
            continue
        except Exception as problem:  # tracing raises many types for "this cannot be traced"
            problems.append(problem)
        attempts.pop(0)
    refused = _refused(problems[-1], model)
    if not below and refused.hint in (UNTRACED, NUMBER_HINT):
        for dynamic in (True, False):  # a module may ask whether it is exported, and do then what it cannot
            with contextlib.suppress(Exception), operators_as_defined():
                return trace(model, args, names, dynamic).to_dict()
    raise refused


def exported(model: torch.nn.Module, args: Sequence[torch.Tensor]) -> tuple[ExportedProgram, Graph]:
    """`model(*args)` as torch.export's program and as the engine's graph of it, whose guards say where both hold.

    args: tensors. Sizes are free where export allows. Raises TaskError where it cannot be captured, and where the
    forward takes gradients itself.
    """
    register()
    if _takes_gradients(model):
        raise TaskError("cannot capture: the forward asks autograd for gradients", hint="give it as a task file")
    return traced_as_called(model, lambda: _exported_program(model, args))


def _exported_program(model: torch.nn.Module, args: Sequence[torch.Tensor]) -> tuple[ExportedProgram, Graph]:
    names, problem = _parameter_names(model, len(args)), None
    attempts: list[int | None] = [None, 1, 0]
    for free in attempts:
        limit = SECONDS if free is None else 0
        try:
            with masks_unread(), lengths_as_tensors(), operators_as_defined(), within(limit):
                program = _export(model, _unmarked(tuple(args)), free, LONG)
            graph = _Exported(program, names, args, free != 0).graph()
            return program, msgspec.structs.replace(graph, **placed_items(model))
        except TraceTooLong:
            continue
        except Exception as error:  # as in `capture`
            problem = error
    assert problem is not None
    raise _refused(problem, model)


def _refused(problem: Exception, model: torch.nn.Module) -> TaskError:
    if isinstance(problem, TaskError):
        return problem
    return explained(problem, model) or untraced(problem, model)


def _takes_gradients(model: torch.nn.Module) -> bool:
    """Whether the forward's code asks autograd for gradients."""
    classes = [c for c in type(model).__mro__ if c is not torch.nn.Module]
    names = {n for c in classes for f in vars(c).values() if inspect.isfunction(f) for n in f.__code__.co_names}
    return bool(names & {"grad", "backward", "enable_grad", "vjp", "jacrev"})


def _lift(leaf: Any) -> Any:
    """A float argument as a 0-d tensor: export would fix a number, and the program would hold for that one only."""
    return torch.tensor(leaf, dtype=torch.float64) if type(leaf) is float else leaf


def _unmarked(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments as new tensors on the same memory: a failed export leaves its marks of free sizes on its own.

    A tensor that is passed twice becomes two: export takes one object for one input, and a program has to be right for
    a caller who passes different ones.
    """
    return tuple(
        pytree.tree_map(
            lambda leaf: leaf.detach().requires_grad_(leaf.requires_grad) if type(leaf) is torch.Tensor else leaf, args
        )
    )


def _export(model: torch.nn.Module, args: tuple[Any, ...], free: int | Varying | None, long: int) -> ExportedProgram:
    """free: how many dimensions of each tensor are, the first ones, or which; None for all."""
    shapes = None
    if free != 0:
        which = iter(free if free is not None and not isinstance(free, int) else ())

        def one(leaf: Any) -> dict[int, Any] | None:
            if not isinstance(leaf, torch.Tensor):
                return None
            dims = range(leaf.ndim)[:free] if free is None or isinstance(free, int) else next(which)
            return dict.fromkeys(dims, Dim.AUTO)

        shapes = pytree.tree_map(one, dict(inspect.signature(model.forward).bind(*args).arguments))
    with warnings.catch_warnings(), torch.no_grad(), steps_unwalked(), attributes_as_buffers(model), narrows_gathered():
        warnings.simplefilter("ignore")
        with transforms_refused():
            exported = torch.export.export(model, args, dynamic_shapes=shapes, strict=False)
        lifted = (exported.constants.get(name) for name in exported.graph_signature.lifted_tensor_constants)
        no_fixed_state(lifted, dict(model.named_parameters()) | dict(model.named_buffers()))
        if writes_to_narrows(exported.graph):
            raise TaskError("cannot capture: a write to a narrow that starts where a tensor says", hint=UNTRACED)
        for place in transforms(exported.graph):
            raise Transformed(place)
        traced = {node.name: node for node in exported.graph.nodes}
        _no_unused_draws(exported)
        table = decompositions()
        if not needs_no_decomposition(exported, table, long):
            exported = exported.run_decompositions(table)
    for node in exported.graph.nodes:
        # torch 2.13 gives nll_loss_nd without reduction the shape () here, and all that follows, when the batch is free
        if _loses_dimensions(node, traced):
            raise TaskError(f"torch.export loses dimensions of {node.target}", hint=UNTRACED)
    return exported


def _no_unused_draws(exported: ExportedProgram) -> None:
    """Raises TaskError for a draw that nothing reads beside one that is read: it moves the generator, and the next
    steps would remove it. Where none is read (a draw for LayerDrop, in evaluation) no result depends on the generator.
    """
    draws = [node for node in exported.graph.nodes if node.op == "call_function" and _draws(node)]
    unread = [node for node in draws if not node.users]
    if 0 < len(unread) < len(draws):
        raise TaskError(
            f"cannot capture: {at_node(unread[0]) or unread[0].name} draws random numbers that nothing reads",
            hint="remove the statement, or use what it draws",
        )


def _draws(node: torch.fx.Node) -> bool:
    args = tuple(arg if isinstance(arg, (bool, int, float)) else None for arg in node.args)
    kwargs = {key: arg for key, arg in node.kwargs.items() if isinstance(arg, (bool, int, float))}
    return draws_numbers(Node(name=node.name, op=str(node.target), args=args, kwargs=kwargs, outs=()))


def _loses_dimensions(node: Any, traced: Mapping[str, Any]) -> bool:
    """Whether a node of a decomposed graph has fewer or more dimensions than the same call had. traced: by name, the
    nodes of the graph that was decomposed.
    """
    source = next(iter(node.meta.get("from_node") or ()), None)
    while source is not None and source.from_node:
        source = source.from_node[-1]
    before = traced.get(source.name) if source is not None else None
    if before is None or before.target is not node.target:
        return False
    values = [one.meta.get("val") for one in (before, node)]
    return all(isinstance(value, torch.Tensor) for value in values) and values[0].ndim != values[1].ndim


def _parameter_names(model: torch.nn.Module, count: int) -> list[str]:
    parameters = list(inspect.signature(model.forward).parameters.values())
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "x")
    return (names + [f"{rest}_{i}" for i in range(count)])[:count]


class _Result:
    """One leaf of the output, in the argument language."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _opened(output: Any) -> Any:
    """The output with plain dicts, tuples and lists, and the values of its leaves."""
    if isinstance(output, dict):
        return {key: _opened(value) for key, value in output.items()}
    if isinstance(output, (tuple, list)):
        opened = [_opened(value) for value in output]
        return tuple(opened) if isinstance(output, tuple) else opened
    return output.value if isinstance(output, _Result) else output


class _Exported(Builder):
    """Turns one ExportedProgram into a Graph."""

    def __init__(self, exported: ExportedProgram, names: Sequence[str], args: Sequence[Any], dynamic: bool) -> None:
        super().__init__(names, dynamic, calls_of(exported.graph))
        self.exported = exported
        self.args = args

    def graph(self) -> Graph:
        signature = self.exported.graph_signature
        inputs = self._inputs()
        self.guards += self._assumed()
        nodes = []
        output: Any = None
        for node in self.exported.graph.nodes:
            if node.op == "output":
                output = node.args[0]
            elif node.op == "call_function" and not self.is_size(node):
                nodes.append(self.node(node))
        mutations, results = [], []
        for spec, value in zip(signature.output_specs, output, strict=True):
            kind = spec.kind.name
            if kind == "BUFFER_MUTATION" and self._keeps_shape(spec.target, value):
                mutations.append(Mutation(access=f"self.{spec.target}", node=value.name))
            elif kind == "USER_OUTPUT":
                results.append(self.arg(value))
            elif kind == "USER_INPUT_MUTATION":
                given = next(one for one in inputs if one.name == spec.target)
                mutations.append(Mutation(access=given.access, node=value.name))
        # a class of outputs may unpack a dict or a list that it is made of: its leaves are opaque until it is made
        nested = pytree.tree_unflatten([_Result(result) for result in results], self.exported.call_spec.out_spec)
        graph = Graph(
            parameters=tuple(self.names),
            inputs=tuple(inputs),
            nodes=tuple(nodes),
            output=nest(_opened(nested)),
            symbols=tuple(self.symbols),
            guards=tuple(self.guards),
            mutations=tuple(mutations),
            dynamic=bool(self.symbols),
        )
        graph = without_certain_draws(graph)
        return msgspec.structs.replace(graph, guards=tuple(dict.fromkeys([*graph.guards, *layout_guards(graph)])))

    def _keeps_shape(self, buffer: str, value: Any) -> bool:
        """Whether a buffer's new value has its shape; else it is a cache (`task.host.rebuilt`), no state."""
        specs = self.exported.graph_signature.input_specs
        names = {spec.arg.name for spec in specs if spec.kind.name == "BUFFER" and spec.target == buffer}
        return all(same_shapes(node, value) for node in self.exported.graph.nodes if node.name in names)

    def _inputs(self) -> list[Input]:
        placeholders = [node for node in self.exported.graph.nodes if node.op == "placeholder"]
        leaves = [
            (access_of(path, self.names), leaf) for path, leaf in pytree.tree_flatten_with_path(tuple(self.args))[0]
        ]
        user = iter(leaves)
        found = []
        for node, spec in zip(placeholders, self.exported.graph_signature.input_specs, strict=True):
            value = node.meta.get("val")
            if spec.kind.name == "USER_INPUT":
                access, leaf = next(user)
                if not isinstance(value, torch.Tensor):
                    self.guard_scalar(access, leaf)
                    continue
                if isinstance(leaf, torch.Tensor):
                    self.bind(access, value, leaf)
                else:
                    access = f"torch.full((), {access}, dtype=torch.float64)"
                found.append(Input(name=node.name, kind="input", access=access, meta=self.meta(value)))
            elif isinstance(value, torch.Tensor):
                found.append(self._state(node, spec, value))
        return found

    def _assumed(self) -> list[str]:
        """Conditions on sizes under which export's path is the module's."""
        values = (node.meta.get("val") for node in self.exported.graph.nodes)
        tensor = next((value for value in values if isinstance(value, torch.Tensor)), None)
        env = getattr(getattr(tensor, "fake_mode", None), "shape_env", None)
        if env is None or not self.symbols:
            return []
        nodes = self.exported.graph.nodes
        bounds = [*slice_bounds(nodes, self._expression), *split_counts(nodes, self._expression)]
        captured = {symbol.name: symbol.hint for symbol in self.symbols}
        return list(dict.fromkeys([*assumptions(env.guards, self._expression, captured), *bounds]))

    def _expression(self, expression: Any) -> str:
        """A size as text; ValueError where it holds a symbol that no input gives."""
        if set(map(str, expression.free_symbols)) - self.rename.keys():
            raise ValueError(f"a size that no input gives: {expression}")
        return str(self.size(int(expression) if expression.is_Integer else expression))

    def _state(self, node: Any, spec: Any, value: torch.Tensor) -> Input:
        kind = {"PARAMETER": "param", "BUFFER": "buffer"}.get(spec.kind.name, "const")
        access = f"self.{spec.target}"
        if kind == "const" and spec.target.rpartition(".")[2].startswith(("lifted_tensor", "_tensor_constant")):
            return self.constant(node.name, access, self.exported.constants.get(spec.target))
        return Input(name=node.name, kind=kind, access=access, meta=self.meta(value))  # type: ignore[arg-type]
