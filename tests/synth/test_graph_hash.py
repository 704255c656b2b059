"""Graph hashes: independent of spelling, order and names; dependent on operators, wiring and sizes."""

from __future__ import annotations

import copy
import functools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.synth.graphs.hash import graph_hash, graph_steps, shapeless_hash
from tests.dataset.planted import planted
from tests.synth.captured import captured, each, task

BASES = {
    "gated": task("y = torch.relu(x * self.w)\nz = torch.sigmoid(x)\nout = y + z\nreturn out.mean(dim=-1)", "w"),
    "rows": task(
        "a = torch.softmax(x, dim=-1)\nb = (a - a.mean(dim=-1, keepdim=True)).exp()\nreturn a, b * self.w", "w"
    ),
    "columns": task("s = x.sum(dim=0)\nm = x.amax(dim=0)\nreturn torch.stack([s, m], dim=1)"),
}
RESIZING = {"resized", "rebatched", "everything"}


QUICK = ("everything", "resized", "wrapped")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "gated" else pytest.mark.slow) for name in BASES]
)
def test_near_copies_have_the_hashes_of_the_original(name: str) -> None:
    check(BASES[name], QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", BASES)
def test_every_way_to_plant_a_near_copy(name: str) -> None:
    assert len(planted(BASES[name])) >= 8
    check(BASES[name], tuple(planted(BASES[name])))


def check(source: str, ways: tuple[str, ...]) -> None:
    base, copies = captured(source), planted(source)
    for way in ways:
        other = captured(copies[way])
        assert (graph_hash(other) == graph_hash(base)) == (way not in RESIZING), way
        assert shapeless_hash(other) == shapeless_hash(base), way
        assert graph_steps(other) == graph_steps(base), way


SAME = {
    "a linear layer": ("return F.linear(x, self.w2, self.w)", "return x @ self.w2.t() + self.w"),
    "silu": ("return F.silu(x)", "return torch.sigmoid(x) * x"),
    "relu": ("return F.relu(x)", "return x.clamp(min=0)"),
    "squares": ("return x * x", "return torch.pow(x, 2)"),
    "rsqrt": ("return torch.rsqrt(x.abs() + 1)", "return 1 / torch.sqrt(x.abs() + 1)"),
    "division": ("return x / 4", "return x * 0.25"),
    "subtraction": ("return x - 2", "return x + (-2)"),
    "a sum of three": ("return (x + self.w) + x.exp()", "return x + (x.exp() + self.w)"),
    "kept dimension": ("return x.sum(dim=1, keepdim=True)", "return x.sum(dim=-1).unsqueeze(1)"),
    "largest": ("return x.max(dim=1).values", "return torch.amax(x, 1)"),
    "moments": (
        "v, m = torch.var_mean(x, dim=1, correction=0)\nreturn v, m",
        "return x.var(dim=1, unbiased=False), x.mean(dim=1)",
    ),
    "broadcast": ("return x + self.w.expand_as(x)", "return x + self.w[None, :]"),
    "turned twice": ("return x.t().exp().t()", "return x.t().exp().permute(1, 0)"),
    "a loss": ("return F.mse_loss(x, x.exp())", "return ((x - x.exp()) ** 2).mean()"),
    "a part": ("return x.chunk(2, dim=1)[1]", "return x[:, 6:]"),
    "a norm": ("return x.norm(dim=1)", "return x.square().sum(dim=1).sqrt()"),
    "filled": ("return x.masked_fill(x > 1, 0.0)", "return torch.where(x > 1, 0.0, x)"),
    "twice the same": ("return x.exp() + x.exp().sum()", "y = x.exp()\nreturn y + y.sum()"),
    "nothing": ("return x.view(2, -1).reshape(8, 12)[:, :].tanh().to(torch.float32)", "return x.tanh() * 1 + 0"),
}


@functools.cache
def _sides(table: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The graphs of a table's first and of its second spellings, each table captured at once."""
    pairs = list({"same": SAME, "different": DIFFERENT, "alike": ALIKE}[table].values())
    first, second = (each([pair[side] for pair in pairs]) for side in (0, 1))
    return first, second


def _pair(table: str, place: int) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = _sides(table)
    return first[place], second[place]


@pytest.mark.parametrize("name", SAME)
def test_two_spellings_of_one_computation_have_equal_hashes(name: str) -> None:
    one, other = _pair("same", list(SAME).index(name))
    assert graph_hash(one) == graph_hash(other)
    assert shapeless_hash(one) == shapeless_hash(other)


DIFFERENT = {
    "operator": ("return x.exp()", "return x.tanh()"),
    "axis": ("return x.softmax(dim=0)", "return x.softmax(dim=1)"),
    "wiring": ("y = x.exp()\nreturn y.sum(dim=1) * y.amax(dim=1)", "y = x.exp()\nreturn y.sum(dim=1) * x.amax(dim=1)"),
    "one twice and two": ("return torch.maximum(self.w, self.w)", "return torch.maximum(self.w, self.v)"),
    "order of what does not commute": ("return x - self.w", "return self.w - x"),
    "exponent": ("return x ** 2", "return x ** 3"),
    "outputs": ("y = x.exp()\nreturn y", "y = x.exp()\nreturn y, y.sum()"),
    "approximation": ("return F.gelu(x)", "return F.gelu(x, approximate='tanh')"),
    "which half": ("return x[:, :6]", "return x[:, 6:]"),
    "which limit": ("return x.clamp(min=1.0)", "return x.clamp(max=1.0)"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_another_computation_has_another_hash(name: str) -> None:
    one, other = _pair("different", list(DIFFERENT).index(name))
    assert graph_hash(one) != graph_hash(other)
    assert shapeless_hash(one) != shapeless_hash(other)


ALIKE = {
    "factor": ("return x * 0.5", "return x * 0.75"),
    "divisor": ("return x.var(dim=1)", "return x.var(dim=1, unbiased=False)"),
    "width": ("return x.exp()", "return x.half().exp().float()"),
    "limits": ("return x.clamp(0.1, 0.5)", "return x.clamp(0.1, 0.7)"),
}


@pytest.mark.parametrize("name", ALIKE)
def test_constants_and_widths_change_only_the_exact_hash(name: str) -> None:
    one, other = _pair("alike", list(ALIKE).index(name))
    assert graph_hash(one) != graph_hash(other)
    assert shapeless_hash(one) == shapeless_hash(other)


def test_swapped_outputs_change_only_the_exact_hash() -> None:
    one = GRAPHS["rows"]
    other = {**one, "output": {"tuple": list(reversed(one["output"]["tuple"]))}}
    assert graph_hash(one) != graph_hash(other)
    assert shapeless_hash(one) == shapeless_hash(other)


GRAPHS = {name: captured(source) for name, source in BASES.items()}


@settings(max_examples=60)
@given(st.sampled_from(sorted(GRAPHS)), st.integers(0, 2**32))
def test_names_the_order_of_nodes_and_of_commutative_operands_do_not_matter(name: str, seed: int) -> None:
    shuffled = shuffle(GRAPHS[name], random.Random(seed))
    assert shuffled != GRAPHS[name]
    assert graph_hash(shuffled) == graph_hash(GRAPHS[name])
    assert shapeless_hash(shuffled) == shapeless_hash(GRAPHS[name])
    assert graph_steps(shuffled) == graph_steps(GRAPHS[name])


def shuffle(graph: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same graph: other names, another order that is legal, commutative operands swapped."""
    graph = copy.deepcopy(graph)
    names = [item["name"] for item in (*graph["inputs"], *graph["nodes"])]
    new = dict(zip(names, (f"n{k}" for k in rng.sample(range(1000), len(names))), strict=True))

    def walk(arg: Any) -> Any:
        if isinstance(arg, dict):
            return {k: new[v] if k == "node" else walk(v) for k, v in arg.items()}
        return [walk(a) for a in arg] if isinstance(arg, (list, tuple)) else arg

    for item in (*graph["inputs"], *graph["nodes"]):
        item["name"] = new[item["name"]]
    for node in graph["nodes"]:
        node["args"], node["kwargs"] = walk(node["args"]), walk(node["kwargs"])
        if node["op"] in ("aten.add.Tensor", "aten.mul.Tensor") and isinstance(node["args"][1], dict):
            rng.shuffle(node["args"])
    graph["output"] = walk(graph["output"])
    rng.shuffle(graph["inputs"])
    waiting, placed, known = list(graph["nodes"]), [], {item["name"] for item in graph["inputs"]}
    while waiting:
        ready = [n for n in waiting if {str(name) for name in _mentioned(n["args"])} <= known]
        node = rng.choice(ready)
        waiting.remove(node)
        placed.append(node)
        known.add(node["name"])
    graph["nodes"] = placed
    return graph


def _mentioned(arg: Any) -> list[str]:
    if isinstance(arg, dict):
        return [arg["node"]] if "node" in arg else []
    return [name for a in arg for name in _mentioned(a)] if isinstance(arg, (list, tuple)) else []


def test_what_no_output_needs_does_not_count() -> None:
    lean = GRAPHS["gated"]
    node = copy.deepcopy(lean["nodes"][0])
    node["name"] = "unused"
    assert graph_hash({**lean, "nodes": [*lean["nodes"], node]}) == graph_hash(lean)


@pytest.mark.slow
def test_batch_norm_in_training_differs_from_one_that_does_not_learn() -> None:
    learning = task("return self.n(x)").replace(
        "super().__init__()", "super().__init__()\n        self.n = nn.BatchNorm1d(12)"
    )
    fixed = learning.replace("nn.BatchNorm1d(12)", "nn.BatchNorm1d(12).eval()")
    assert shapeless_hash(captured(learning)) != shapeless_hash(captured(fixed))
