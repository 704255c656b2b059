"""A module that computes gradients becomes a graph: traced below autograd, so backward operators are nodes like others.

torch.export traces above autograd and cannot follow `torch.autograd.grad`. Here make_fx records what autograd runs on
fake tensors with symbolic sizes, once as it is and once more with mutation made functional (the way of AOTAutograd).
Runs in the task host; imports torch.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils import _pytree as pytree

from hipwright.capture.backward_operators import STATEFUL, decompositions
from hipwright.capture.fx_nodes import Builder, access_of, calls_of, nest, same_shapes
from hipwright.capture.graph import Graph, Input, Mutation
from hipwright.capture.plain_attributes import no_fixed_state
from hipwright.capture.value_dependent import at_node
from hipwright.errors import TaskError

_SAME = ("aten.detach.default", "aten.alias.default")
_SAMPLES = (2, 3, 64)  # sizes at which a guard that export would not write either holds
_TRANSFORMS, _LOST = "torch._functorch.predispatch", "fake tensor in the exported program"


class Transformed(TaskError):
    """A forward calls torch.vmap or flex_attention, whose operators an exported graph has as those of one row."""

    def __init__(self, place: str = "") -> None:
        at = f"{place}: " if place else ""
        super().__init__(
            f"cannot capture: {at}torch.export does not trace torch.vmap and flex_attention",
            hint="give the module as a task file (docs/tasks.md), whose forward may call them",
        )


@contextmanager
def transforms_refused() -> Iterator[None]:
    """A context in which torch.export raises Transformed where it lost the operators of torch.vmap."""
    try:
        yield
    except RuntimeError as error:
        if _LOST in str(error):
            raise Transformed() from error
        raise


def transforms(graph: torch.fx.Graph) -> Iterator[str]:
    """The statements of transforms of functions (torch.vmap) in a graph that torch.export traced, not decomposed yet;
    "" for one that is not known.
    """
    held = [node for node in graph.nodes if getattr(node.target, "__module__", None) == _TRANSFORMS]
    return map(at_node, sorted(held, key=lambda node: not at_node(node)))


def trace(model: torch.nn.Module, args: Sequence[Any], names: Sequence[str], dynamic: bool) -> Graph:
    """The graph of `model(*args)` below autograd. Raises whatever tracing raises."""
    env = ShapeEnv(duck_shape=False)
    mode = FakeTensorMode(shape_env=env, static_shapes=not dynamic, allow_non_fake_inputs=True)
    leaves, spec = pytree.tree_flatten_with_path(tuple(args))
    tensors = [k for k, (_, leaf) in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    params = dict(model.named_parameters())
    state = params | dict(model.named_buffers())

    def fake(tensor: Any, kind: DimDynamic) -> Any:
        context = StatelessSymbolicContext([kind] * tensor.ndim) if dynamic else None
        return mode.from_tensor(tensor.detach(), symbolic_context=context)

    held = {name: fake(t, DimDynamic.STATIC).requires_grad_(name in params) for name, t in state.items()}
    free = DimDynamic.DYNAMIC if dynamic else DimDynamic.STATIC
    given = [fake(leaves[k][1], free) for k in tensors]
    begun = [*held.values(), *given]  # a forward that assigns to a buffer replaces it in `held`
    outs: list[Any] = []

    def call(held: dict[str, Any], given: list[Any]) -> Any:
        filled = [leaf for _, leaf in leaves]
        for k, tensor in zip(tensors, given, strict=True):
            filled[k] = tensor
        result = torch.func.functional_call(model, held, tuple(pytree.tree_unflatten(filled, spec)))
        flat, nesting = pytree.tree_flatten(result)
        outs[:] = [nesting]
        return flat, [held[name] for name in state if name not in params]

    # torch's forms in Python take sizes that are free where those in C++ do not
    with mode, enable_python_dispatcher() if dynamic else nullcontext():
        with torch.no_grad():  # as the reference runs; what wants gradients says so itself
            first = make_fx(call, decomposition_table=STATEFUL, _allow_non_fake_inputs=True)(held, given)
        again = torch.func.functionalize(lambda *a: torch.fx.Interpreter(first).run(*a), remove="mutations")
        plain = [t.detach() for t in begun]
        with torch.no_grad():
            module = make_fx(again, decomposition_table=decompositions(), _allow_non_fake_inputs=True)(*plain)
    user = [(access_of(leaves[k][0], names), leaves[k][1]) for k in tensors]
    scalars = [(access_of(path, names), leaf) for path, leaf in leaves if not isinstance(leaf, torch.Tensor)]
    buffers = [name for name in state if name not in params]
    held_by = (getattr(module, node.target) for node in module.graph.nodes if node.op == "get_attr")
    no_fixed_state(held_by, state)
    return _Traced(module, names, dynamic).graph_of(list(params), buffers, user, scalars, outs[0], env)


class _Traced(Builder):
    """Turns one traced module into a Graph."""

    def __init__(self, module: torch.fx.GraphModule, names: Sequence[str], dynamic: bool) -> None:
        super().__init__(names, dynamic, calls_of(module.graph))
        self.module = module

    def graph_of(
        self,
        params: list[str],
        buffers: list[str],
        user: list[tuple[str, Any]],
        scalars: list[tuple[str, Any]],
        spec: Any,
        env: ShapeEnv,
    ) -> Graph:
        """user: (access, example) of each tensor input. spec: the nesting of the outputs."""
        self._clean()
        placeholders = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        inputs = self._state(placeholders, params, buffers) + self._given(placeholders[len(params + buffers) :], user)
        for access, leaf in scalars:
            self.guard_scalar(access, leaf)
        inputs += [self._constant(node) for node in self.module.graph.nodes if node.op == "get_attr"]
        nodes = [n for n in self.module.graph.nodes if n.op == "call_function" and not self.is_size(n)]
        flat, new = next(node.args[0] for node in self.module.graph.nodes if node.op == "output")
        held = placeholders[len(params) : len(params + buffers)]
        pairs = zip(buffers, new, held, strict=True)
        moved = [(name, node) for name, node, old in pairs if node is not old and same_shapes(node, old)]
        result = nest(pytree.tree_unflatten([self.arg(value) for value in flat], spec))
        return Graph(
            parameters=tuple(self.names),
            inputs=tuple(inputs),
            nodes=tuple(map(self.node, nodes)),
            output=result,
            symbols=tuple(self.symbols),
            guards=(*self.guards, *self._relations(env)),
            mutations=tuple(Mutation(access=f"self.{name}", node=node.name) for name, node in moved),
            dynamic=bool(self.symbols),
        )

    def _clean(self) -> None:
        """The graph without dead nodes and without the copies into arguments that functionalisation appends."""
        graph = self.module.graph
        for node in list(graph.nodes):
            if node.op == "call_function" and str(node.target) == "aten.copy_.default":
                if not (node.args[0].op == "placeholder" and not node.users):
                    raise TaskError("cannot capture: a write that cannot be made functional")
                graph.erase_node(node)
            elif node.op == "call_function" and str(node.target) in _SAME:  # autograd's own copies of one value
                node.replace_all_uses_with(node.args[0])
        graph.eliminate_dead_code()

    def _state(self, placeholders: list[Any], params: list[str], buffers: list[str]) -> list[Input]:
        kinds = [("param", name) for name in params] + [("buffer", name) for name in buffers]
        found = []
        for node, (kind, name) in zip(placeholders, kinds, strict=False):
            node._rename(re.sub(r"\W", "_", f"{kind[0]}_{name}"))
            meta = self.meta(node.meta["val"])
            found.append(Input(name=node.name, kind=kind, access=f"self.{name}", meta=meta))  # type: ignore[arg-type]
        return found

    def _given(self, placeholders: list[Any], user: list[tuple[str, Any]]) -> list[Input]:
        found = []
        for node, (access, leaf) in zip(placeholders, user, strict=True):
            if any(str(n.target) == "aten.copy_.default" for n in node.users):
                raise TaskError("cannot capture: the forward writes into its input")
            node._rename(re.sub(r"\W+", "_", access).strip("_"))
            self.bind(access, node.meta["val"], leaf)
            found.append(Input(name=node.name, kind="input", access=access, meta=self.meta(node.meta["val"])))
        return found

    def _constant(self, node: Any) -> Input:
        tensor = getattr(self.module, node.target)
        return self.constant(node.name, f"self.{node.target}", tensor)

    def _relations(self, env: ShapeEnv) -> list[str]:
        """Conditions on sizes that tracing took for granted, beyond sizes other than 0 and 1."""
        found: dict[str, None] = {}
        for guard in env.guards:
            expression = env.replace(guard.expr)
            symbols = sorted(expression.free_symbols, key=str)
            values = itertools.islice(itertools.product(_SAMPLES, repeat=len(symbols)), 243)
            if not all(bool(expression.subs(dict(zip(symbols, v, strict=True)))) for v in values):
                found[self.relation(expression)] = None
        return list(found)
