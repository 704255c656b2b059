"""Chains of operations in the short form: a statement for each operator."""

from __future__ import annotations

import math
import random
import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.engine import write
from hipwright.llm.compact import expand, shorten, shortened
from hipwright.llm.compact.statements import as_statements
from hipwright.records import Program
from hipwright.toolchain.cache import BuildCache
from hipwright.train.mini.corpus import at_shape, capture_composition, draw_choices
from hipwright.train.mini.tasks import Composition
from tests.train.mini.builds import kernels

DEEP = (
    Composition(("leaky", "softplus", "maximum", "hardswish", "shift"), "float16"),
    Composition(("silu", "mul", "softmax", "gelu", "half"), "float32"),
    Composition(("relu", "tanh", "layernorm", "addrow", "clamp"), "float16"),
    Composition(("mulrow", "abs", "rmsnorm", "sigmoid", "double"), "float32"),
    Composition(("double", "tanh", "square", "gelu", "sum"), "float32"),
    Composition(("sub", "amax", "gelu", "square", "clamp"), "float16"),
)


def split(statement: str) -> list[str]:
    """The lines that a statement in a kernel becomes."""
    given = f'extern "C" __global__ void run(const float* x, float* out, int n) {{\n        {statement}\n}}\n'
    return [line.strip() for line in as_statements(given).splitlines()[1:-1]]


@pytest.mark.parametrize(
    "statement, lines",
    [
        (
            "s3.v[k] = relu(gelu(expf(x_tile2.v[k] - s.max) * t2));",
            ["const auto a = expf(x_tile2.v[k] - s.max) * t2;", "const auto b = gelu(a);", "s3.v[k] = relu(b);"],
        ),
        (
            "out[i] = __half(gelu((float)x[i] * 2.0f) + (float)y[i]);",
            ["const auto a = (float)x[i] * 2.0f;", "const auto b = gelu(a);", "out[i] = __half(b + (float)y[i]);"],
        ),
        (
            "s = nan_max(s, relu(gelu(x[i])));",
            ["const auto a = gelu(x[i]);", "const auto b = relu(a);", "s = nan_max(s, b);"],
        ),
        ("s += relu(x[i]);", ["const auto a = relu(x[i]);", "s += a;"]),
        ("s += x[i] * y[i];", ["s += x[i] * y[i];"]),
        (
            "const float t = (relu(x[i]) + 1.0f) * y[i];",
            ["const auto a = relu(x[i]);", "const auto b = a + 1.0f;", "const float t = b * y[i];"],
        ),
        (
            "out[i] = silu(nan_min(nan_max(relu(x[i]), -1.0f), 1.0f));",
            ["const auto a = relu(x[i]);", "const auto b = nan_min(nan_max(a, -1.0f), 1.0f);", "out[i] = silu(b);"],
        ),
        ("out[row] = relu(s / (float)n);", ["const auto a = s / (float)n;", "out[row] = relu(a);"]),
        (
            "out[i] = relu(x[i] < 0.0f ? gelu(silu(x[i])) : y[i]) * 2.0f;",
            ["const auto a = relu(x[i] < 0.0f ? gelu(silu(x[i])) : y[i]);", "out[i] = a * 2.0f;"],
        ),
    ],
)
def test_each_operator_is_a_statement(statement: str, lines: list[str]) -> None:
    assert split(statement) == lines


@pytest.mark.parametrize(
    "statement",
    [
        "out[i] = relu(x[i]);",
        "const int j = k / 4 * (n * 4) + k % 4;",
        "n = min(n * 4 + 1, max(n, 2)) * 3;",
        "const float t2 = rsqrtf(s.squares * 0.0078125f + 1e-05f);",
        "const auto x_tile = load_tile<4, 2>(x + row * n, base * 2 + 1, n * 4, n, t);",
        "out[(row * 2 + 1) * n + k] = relu(x[(row * 2 + 1) * n + k]);",
        "const bool b2 = relu(gelu(x[i])) > 0.0f && silu(relu(x[i])) < 1.0f;",
        "out[i] = x[i] < 0.0f ? gelu(silu(x[i])) : relu(silu(x[i]));",
        "out[i] = [&](float v) { return relu(gelu(v)); }(x[i]);",
        "run<<<n * 4 + 1, 64>>>(x, out, n);",
    ],
)
def test_what_stays(statement: str) -> None:
    assert split(statement) == [statement]


@pytest.mark.parametrize(
    "around",
    [
        "for (int k = 0; k < n; ++k)\n    STATEMENT",
        "if (n) STATEMENT",
        "if (n) {\n    }\n    else\n    STATEMENT",
        "switch (n) {\n    case 1:\n    n = 2;\n    STATEMENT\n    }",
    ],
)
def test_a_statement_without_braces_stays(around: str) -> None:
    kernel = f'extern "C" __global__ void run(int n) {{\n    {around}\n}}\n'.replace(
        "STATEMENT", "out[0] = relu(gelu(x[0]));"
    )
    assert as_statements(kernel) == kernel


def test_names_are_free_ones_and_restart_in_each_block() -> None:
    kernel = (
        'extern "C" __global__ void run(const float* a, float* out, int c) {\n'
        "    if (c) {\n        out[0] = relu(gelu(silu(a[0])));\n        out[1] = relu(gelu(a[1]));\n    } else {\n"
        "        out[0] = gelu(relu(a[0]));\n    }\n}\n"
    )
    assert re.findall(r"const auto (\w+) = ", as_statements(kernel)) == ["b", "d", "e", "b"]


# ---------------------------------------------------------------- the same kernels


@pytest.mark.slow
@pytest.mark.parametrize("composition", DEEP, ids=lambda one: "-".join(one.operators))
def test_deep_chains_compile_to_the_same_kernels(
    composition: Composition, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache, rng = BuildCache(tmp_path_factory.mktemp("builds")), random.Random(7)
    graph = at_shape(capture_composition(composition), (24, 100))
    for number in range(8):
        program = write(graph, draw_choices(graph, rng))
        short = shortened(program)
        assert shorten(expand(short)) == short and shorten(short) == short
        for line in short.splitlines():
            assert sum(f"{name}(" in line for name in ("relu", "gelu", "tanhf", "silu", "sigmoid", "square")) < 2
        if number % 4 == 0:
            assert kernels(Program(text=expand(short)), cache) == kernels(program, cache)


# ---------------------------------------------------------------- the same values

LEAVES = ("x[i]", "y[i]", "tile.v[k]", "(float)x[k]", "s.max", "t", "2.0f", "-0.5f", "(x[i] < y[i] && 1.0f)")
CALLS = {"relu": 1, "gelu": 1, "expf": 1, "nan_max": 2, "nan_min": 2, "sub_rn": 2, "leaky_relu": 2}


VALUES: dict[str, Any] = {
    "x": [0.75, -1.5],
    "y": [1.25, 0.5],
    "tile": SimpleNamespace(v=[-0.3, 0.9]),
    "s": SimpleNamespace(max=0.7),
    "t": 1.7,
    "i": 0,
    "k": 1,
    "relu": lambda a: max(a, 0.0),
    "gelu": math.tanh,
    "expf": lambda a: math.exp(min(a, 5.0)),
    "nan_max": max,
    "nan_min": min,
    "sub_rn": lambda a, b: a - b,
    "leaky_relu": lambda a, b: a if a > 0 else a * b,
    "__half": lambda a: round(a, 2),
}


def expressions() -> st.SearchStrategy[str]:
    """Nested expressions of C++ which, casts and suffixes aside, are Python's too."""
    leaves = st.sampled_from(LEAVES)

    def wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        calls = [
            st.tuples(*[inner] * count).map(lambda given, name=name: f"{name}({', '.join(given)})")
            for name, count in CALLS.items()
        ]
        binary = st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda parts: " ".join(parts))
        return st.one_of(
            *calls,
            binary,
            inner.map(lambda one: f"({one})"),
            inner.map(lambda one: f"__half({one})"),
            inner.map(lambda one: f"-({one})"),
        )

    return st.recursive(leaves, wider, max_leaves=12)


def evaluated(text: str) -> float:
    """The value that the statements of a block store in out[i]."""
    text = re.sub(r"const auto |\(float\)|;$", "", text, flags=re.MULTILINE)
    text = re.sub(r"(\d)f\b", r"\1", text).replace("&&", "and")
    names = VALUES | {"out": [0.0]}
    exec(text, names)
    return float(names["out"][0])


@given(expressions())
def test_statements_have_the_value_of_the_expression(expression: str) -> None:
    kernel = f'extern "C" __global__ void run() {{\n    out[i] = {expression};\n}}\n'
    body = [line.strip() for line in as_statements(kernel).splitlines()[1:-1]]
    try:
        want = evaluated(f"out[i] = {expression};")
    except (ZeroDivisionError, OverflowError):
        return
    got = evaluated("\n".join(body))
    assert got == want or (math.isnan(got) and math.isnan(want))
    assert as_statements(as_statements(kernel)) == as_statements(kernel)
