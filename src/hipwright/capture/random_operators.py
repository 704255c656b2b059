"""Operators of a captured graph that draw random numbers, and what the order of their numbers depends on.

A draw fills its result in the order in which the result lies in memory. So a program draws as the module does where its
results lie as the module's do: the layouts of the inputs on which they depend are guarded. (Without torch.)
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hipwright.capture.graph import Graph, Input, Meta, Node, Size, references, short

ALWAYS = frozenset(
    {
        "_sample_dirichlet",
        "_standard_gamma",
        "bernoulli",
        "binomial",
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "multinomial",
        "normal",
        "normal_functional",
        "poisson",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "random",
        "randperm",
        "uniform",
    }
)
_SWITCHED = {
    "alpha_dropout": (2,),
    "dropout": (2,),
    "feature_alpha_dropout": (2,),
    "feature_dropout": (2,),
    "gru": (5, 6),
    "lstm": (5, 6),
    "native_dropout": (2,),
    "rnn_relu": (5, 6),
    "rnn_tanh": (5, 6),
    "rrelu": (3,),
    "rrelu_with_noise": (4,),
    "rrelu_with_noise_functional": (4,),
    "scaled_dot_product_attention": (4,),
}
"""Operators that draw where none of these arguments is 0 or False: training, the share that is dropped."""
LIKE = ALWAYS - {"_sample_dirichlet", "_standard_gamma", "binomial", "multinomial", "poisson"} | {"native_dropout"}
"""Of those that draw, the ones that take of a tensor its form alone; but for `bernoulli` and `normal` of a tensor."""
_FROM_VALUES = frozenset({"aten.bernoulli.default", "aten.bernoulli.Tensor"})
_ROW_MAJOR = frozenset(
    {"addmm", "baddbmm", "bmm", "embedding", "linear", "matmul", "mm", "new_empty", "new_full", "new_ones", "new_zeros"}
)
"""Operators whose result lies row-major, however their arguments lie."""


def draws_numbers(node: Node) -> bool:
    """Whether a node takes numbers from a generator."""
    kind = short(node.op)
    if kind not in _SWITCHED:
        return kind in ALWAYS
    names = {"scaled_dot_product_attention": ("dropout_p",)}.get(kind, ())
    given = [node.args[n] for n in _SWITCHED[kind] if n < len(node.args)]
    given += [node.kwargs[name] for name in names if name in node.kwargs]
    return bool(given) and all(given)


def form_of(node: Node) -> str:
    """The tensor of which a draw takes the form alone; "" for none."""
    if not draws_numbers(node) or short(node.op) not in LIKE or node.op in _FROM_VALUES or ".Tensor" in node.op:
        return ""
    first = node.args[0] if node.args else None
    return str(first["node"]) if isinstance(first, dict) and "node" in first else ""


def without_certain_draws(graph: Graph) -> Graph:
    """The graph where dropout with p = 1 draws nothing: all is 0, as torch's dropout has it."""
    certain = {n.name: n for n in graph.nodes if short(n.op) == "native_dropout" and n.args[1] == 1 and n.args[2]}
    nodes: list[Node] = []
    for node in graph.nodes:
        source = certain.get(node.args[0]["node"]) if node.op == "getitem" else None
        if source is not None and node.args[1] == 0:
            nodes.append(msgspec.structs.replace(node, op="aten.mul.Tensor", args=(source.args[0], 0.0)))
        elif source is not None:
            empty, dtype = (source.args[0],), {"dtype": {"dtype": "bool"}}
            nodes.append(msgspec.structs.replace(node, op="aten.zeros_like.default", args=empty, kwargs=dtype))
        elif node.name not in certain:
            nodes.append(node)
    return msgspec.structs.replace(graph, nodes=tuple(nodes)) if certain else graph


def layout_guards(graph: Graph) -> Iterator[str]:
    """Conditions on the layout of inputs under which draws fill their results in the module's order."""
    nodes = {node.name: node for node in graph.nodes}
    inputs = {tensor.name: tensor for tensor in graph.inputs if tensor.kind == "input"}
    seen: set[str] = set()
    pending = [name for node in graph.nodes if draws_numbers(node) for name in references(list(node.args))]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in inputs:
            yield from _as_given(inputs[name], graph)
        elif name in nodes and short(nodes[name].op) not in _ROW_MAJOR:
            pending += references([*nodes[name].args, *nodes[name].kwargs.values()])


def _as_given(tensor: Input, graph: Graph) -> Iterator[str]:
    if tensor.access.startswith("torch.full("):  # a number
        return
    if row_major(tensor.meta, graph):
        yield f"{tensor.access}.is_contiguous()"
        return
    for axis, stride in enumerate(tensor.meta.stride):
        yield f"{tensor.access}.stride({axis}) == {stride}"


def row_major(meta: Meta, graph: Graph) -> bool:
    """Whether a tensor lies row-major, at the captured sizes and at others."""
    for shift in (0, 2, 5):
        sizes = {symbol.name: symbol.hint + shift for symbol in graph.symbols}
        expected = 1
        for size, stride in zip(reversed(meta.shape), reversed(meta.stride), strict=True):
            count = _value(size, sizes)
            if count != 1 and _value(stride, sizes) != expected:
                return False
            expected *= count
    return True


def _value(size: Size, sizes: dict[str, int]) -> int:
    """A size at these values of the symbols; the text is of our own capture (`graph.Size`)."""
    return size if isinstance(size, int) else int(eval(size, {"__builtins__": {}}, {"min": min, "max": max, **sizes}))
