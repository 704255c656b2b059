"""Attention that modules write out: which forms become one call, that its values are the module's, and near misses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hipwright.engine import author, explain, space, write
from hipwright.engine.knobs import SPLIT
from tests.engine.harness import captured, check, compare, kernels_in, reference, run
from tests.engine.rewrite.attention_forms import (
    BRAIN,
    CALL,
    HALF,
    KEY,
    SIZES,
    SQUARE,
    Written,
    added,
    biased,
    capped,
    draw,
    filled,
    folded,
    ignored,
    last_heads,
    matrices,
    one_of_all,
    padding,
    plain,
    positions,
    qkv,
    repeated,
    scaled,
    scaled_before,
    seen,
    swallowed,
    tril,
    triu_added,
    where,
)
from tests.engine.template_builds import builds

FORMS: list[tuple[Callable[..., Any], list[Tensor], int]] = [
    (plain, qkv(*SIZES), 64),
    (scaled, qkv(*SIZES), 32),
    (scaled_before, qkv(*SIZES), 64),
    (biased, [*qkv(*SIZES), draw(2, 19, 29)], 64),
    (biased, [*qkv(*SIZES), draw(2, 1, 1, 29)], 32),
    (tril, qkv(*SIZES), 64),
    (positions, qkv(*SQUARE), 32),
    (triu_added, qkv(*SQUARE, dtype=BRAIN), 64),
    (filled, [*qkv(*SIZES), seen(19, 29)], 64),
    (where, [*qkv(*SIZES, dtype=HALF), seen(2, 1, 19, 29)], 32),
    (where, [*qkv(*SIZES), seen(2, 1, 19, 29)], 64),
    (padding, [*qkv(*SIZES), (draw(2, 29) > 0).float()], 64),
    (swallowed, [*qkv(*SIZES, dtype=HALF), torch.arange(2)[:, None].expand(2, 29)], 64),
    (swallowed, [*qkv(*SIZES, dtype=BRAIN), torch.arange(2)[:, None].expand(2, 29)], 32),
    (capped, qkv(*SIZES), 64),
    (folded, [*qkv(*SIZES), draw(2, 1, 19, 29)], 64),
    (added, [*qkv(*SIZES), draw(4, 1, 29)], 64),
    (ignored, qkv(*SIZES), 64),
    (last_heads, qkv(*SIZES), 32),
    (matrices, qkv(*SIZES), 64),
    (one_of_all, qkv(*SIZES), 64),
    (repeated, qkv(2, 6, 19, 29, 16, 16, shared=2), 64),
]


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(("form", "inputs", "wave"), FORMS, ids=lambda x: getattr(x, "__name__", ""))
def test_written_out_forms_are_one_kernel(form: Callable[..., Any], inputs: list[Tensor], wave: int) -> None:
    text = check(Written(form), inputs, choices={KEY: "fused", CALL: "tiled"}, wave=wave)
    kernels = explain(captured(Written(form), inputs), {KEY: "fused", CALL: "tiled"})["kernels"]
    assert [k["mapping"] for k in kernels if k["mapping"].startswith("call")] == ["call:tiled"]
    assert len(kernels) == (2 if form is folded else 1)  # heads that are one dimension with the batch are turned after
    assert "softmax_attention" in text


@pytest.mark.parametrize(
    ("form", "inputs", "wave"),
    [
        (scaled_before, qkv(2, 3, 2, 133, 24, 40), 64),
        (where, [*qkv(2, 3, 3, 133, 64, 72, dtype=HALF), seen(2, 1, 3, 133)], 32),
        (filled, [*qkv(2, 3, 3, 133, 20, 6), seen(3, 133)], 64),
        (repeated, qkv(2, 6, 2, 133, 64, 64, shared=2, dtype=BRAIN), 64),
    ],
)
def test_few_queries(form: Callable[..., Any], inputs: list[Tensor], wave: int) -> None:
    text = check(Written(form), inputs, choices={KEY: "fused", CALL: "split", "DECODE_KEYS": 64}, wave=wave)
    assert kernels_in(text) == 2


@pytest.mark.parametrize(
    ("form", "inputs", "side"),
    [
        (where, [*qkv(2, 3, 3, 133, 64, 64, dtype=HALF), seen(2, 1, 3, 133)], "nvidia"),
        (repeated, qkv(2, 6, 2, 133, 64, 64, shared=2, dtype=BRAIN), "amd"),
    ],
)
def test_few_queries_by_matrix_units(form: Callable[..., Any], inputs: list[Tensor], side: str) -> None:
    chosen = {KEY: "fused", CALL: "matrix", "DECODE_KEYS": 64}
    expected, native, _ = reference(Written(form), inputs)
    program = write(captured(Written(form), inputs), chosen)
    assert "FewRows" in program.text
    compare(run(program, Written(form), inputs, side=side, wave=32 if side == "nvidia" else 64)[0], expected, native)


def irregular() -> list[Tensor]:
    """Queries, keys and values with infinities and NaN."""
    q, k, v = qkv(1, 6, 70, 70, 16, 16)
    q[0, 0, 3, 2], q[0, 0, 4, 2] = math.nan, math.inf
    k[0, 1, 5], k[0, 2, 66, 2] = math.nan, math.inf
    v[0, 3, 65, 1], v[0, 4, 0, 2] = math.inf, math.nan  # behind most queries' diagonal: 0 * inf is NaN
    q[0, 5] = -math.inf
    k[0, 5] = 1.0  # every score is -inf
    return [q, k, v]


@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize("side", ["nvidia", ""])
@pytest.mark.parametrize(
    ("form", "more"),
    [(plain, []), (tril, []), (positions, []), (filled, [seen(70, 70)]), (capped, []), (biased, [draw(2, 70, 70)])],
)
def test_products_in_parts(form: Callable[..., Any], more: list[Tensor], side: str) -> None:
    inputs = [*qkv(1, 2, 70, 70, 32, 48), *more]
    program = write(captured(Written(form), inputs), {KEY: "fused", CALL: "matrix_tiled", SPLIT: True})
    assert "split_multiply" in program.text
    expected, native, _ = reference(Written(form), inputs)
    compare(run(program, Written(form), inputs, side=side, wave=32)[0], expected, native)


@pytest.mark.parametrize("side", ["nvidia", ""])
@pytest.mark.parametrize("form", [plain, tril, positions])
def test_infinities_and_nan_of_products_in_parts(form: Callable[..., Any], side: str) -> None:
    model, inputs = Written(form), [*irregular()]
    chosen = {KEY: "fused", CALL: "matrix_tiled", SPLIT: True}
    expected = model(*(t.double() for t in inputs))
    got, _ = run(write(captured(model, inputs), chosen), model, inputs, side=side, wave=32)
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.isinf(), expected.isinf())


def test_the_rule_for_products_in_parts() -> None:
    graph = captured(Written(tril), qkv(2, 8, 512, 512, 64, 64))
    assert author(graph, {SPLIT: True}).space[CALL].default == "matrix_tiled"
    assert author(graph, {}).space[KEY].default == "separate"


# ---------------------------------------------------------------- what differs from scaled_dot_product_attention


@pytest.mark.parametrize("call", ["tiled", "split"])
def test_a_row_that_sees_nothing_is_nan_or_the_mean_as_the_module_says(call: str) -> None:
    inputs = [*qkv(1, 2, 5, 70, 16, 16), seen(5, 70)]
    chosen = {KEY: "fused", CALL: call, "DECODE_KEYS": 64}
    minus, _ = run(write(captured(Written(filled), inputs), chosen), Written(filled), inputs)
    assert minus[:, :, 1].isnan().all()
    assert not minus[:, :, 0].isnan().any()
    inputs[3] = inputs[3][None, None]
    model = Written(where)
    finite, _ = run(write(captured(model, inputs), chosen), model, inputs)
    torch.testing.assert_close(finite[:, :, 1], inputs[2].mean(2))


@pytest.mark.parametrize("call", ["tiled", "split"])
def test_without_keys_the_result_is_zero(call: str) -> None:
    inputs = qkv(1, 2, 5, 70, 16, 16)
    program = write(captured(Written(plain), inputs), {KEY: "fused", CALL: call})
    got, _ = run(program, Written(plain), [inputs[0], inputs[1][:, :, :0], inputs[2][:, :, :0]])
    assert got.shape == (1, 2, 5, 16)
    assert (got == 0).all()


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("call", ["tiled", "split"])
@pytest.mark.parametrize("form", [plain, tril, positions, triu_added])
def test_infinities_and_nan_go_where_the_module_sends_them(form: Callable[..., Any], call: str) -> None:
    q, k, v = irregular()
    model, inputs = Written(form), [q[:, :, :12] if call == "split" else q, k, v]
    if form is triu_added and call == "split":
        inputs[1], inputs[2] = k[:, :, :12], v[:, :, :12]
    expected = model(*(t.double() for t in inputs))
    got, _ = run(write(captured(model, inputs), {KEY: "fused", CALL: call}), model, inputs)
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.isinf(), expected.isinf())


def shared_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    future = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1)
    return torch.softmax(torch.where(future | mask, -30.0, q @ k.transpose(-2, -1)), -1) @ v


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(
    ("form", "skips"),
    [(tril, True), (positions, True), (shared_mask, True), (triu_added, False), (filled, False), (padding, False)],
)
def test_keys_beyond_the_diagonal_are_left_out_where_their_score_is_a_constant(
    form: Callable[..., Any], skips: bool
) -> None:
    more = {shared_mask: [~seen(70, 70)], filled: [seen(70, 70)], padding: [draw(1, 70)]}.get(form, [])
    text = write(captured(Written(form), [*qkv(1, 2, 70, 70, 16, 16), *more]), {KEY: "fused", CALL: "tiled"}).text
    assert ("n_end = m0 + BM <" in text) == skips


@pytest.mark.parametrize("wave", [32, 64])
def test_what_was_to_be_left_out_counts_where_nothing_before_it_scores_higher(wave: int) -> None:
    """The first rows see -20 to -40, and the future's constant is -30: it must take part, in every tile."""
    q, k, v = qkv(1, 1, 100, 130, 16, 16)
    q[..., 0], k[..., 0] = torch.linspace(40.0, -40.0, 100), -1.0
    q[..., 1:] *= 0.1
    masked = torch.zeros(100, 130, dtype=torch.bool)
    knobs = {"ATTN_ROWS": 1, "ATTN_KEYS": 1, "ATTN_BLOCK": 64}
    text = check(Written(shared_mask), [q, k, v, masked], choices={KEY: "fused", CALL: "tiled", **knobs}, wave=wave)
    assert "__syncthreads_or" in text


# ---------------------------------------------------------------- the rewrite


def test_a_result_turned_back_is_written_in_place() -> None:
    def turned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = torch.softmax(q @ k.transpose(-2, -1), -1) @ v
        return F.gelu(y.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1))

    text = check(Written(turned), qkv(*SIZES), other=qkv(1, 3, 5, 40, 24, 40))
    assert kernels_in(text) == 1


class Projected(torch.nn.Module):
    """Projections with biases before and behind, as encoders have them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (torch.nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        b, n, e = x.shape
        q, k, v = (p(x).view(b, n, self.heads, -1).permute(0, 2, 1, 3) for p in (self.q, self.k, self.v))
        return self.out(scaled(q, k, v).permute(0, 2, 1, 3).reshape(b, n, e))


def test_projections_are_read_where_their_products_left_them() -> None:
    text = check(Projected(32, 2), [draw(2, 11, 32)], other=[draw(3, 5, 32)])
    assert kernels_in(text) == 3  # one for the three projections, the attention and the last product


def test_a_turned_product_is_written_in_place() -> None:
    def turned(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return (a @ b).transpose(0, 1).contiguous() + c

    text = check(Written(turned), [draw(5, 7, 9), draw(5, 9, 11), draw(11)], choices={"call:matmul": "gemm"})
    assert kernels_in(text) == 1


def test_what_the_scores_read_is_computed_once_when_it_is_dear() -> None:
    def relative(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        distance = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
        bias = torch.sin(torch.log1p(distance.abs().float()).sqrt())
        return torch.softmax(q @ k.transpose(-2, -1) + bias, -1) @ v

    inputs = qkv(*SQUARE)
    text = check(Written(relative), inputs, choices={KEY: "fused"})
    assert kernels_in(text) == 2
    assert "log1p" not in text[text.index("softmax_attention_kernel(") :]


def test_two_layers_are_two_calls_and_each_may_stay_separate() -> None:
    def two(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return plain(plain(q, k, v), k, v)

    inputs = qkv(1, 2, 9, 9, 16, 16)
    graph = captured(Written(two), inputs)
    assert {name for name in space(graph) if name.startswith("attention:")} == {KEY, f"{KEY}_1"}
    mapped = [k["mapping"] for k in explain(graph, {KEY: "separate", f"{KEY}_1": "fused"})["kernels"]]
    assert mapped.count("call:tiled") == 1
    text = check(Written(two), inputs)
    assert kernels_in(text) == 1 and text.count("softmax_attention_kernel[") == 2, (
        "layers of one shape share their kernel"
    )


def test_static_rules() -> None:
    def default(*sizes: int, dtype: torch.dtype = torch.float32) -> Any:
        return space(captured(Written(plain), qkv(*sizes, dtype=dtype)))[KEY].default

    assert default(2, 4, 64, 64, 32, 32) == "fused"
    assert default(2, 8, 1, 512, 64, 64, dtype=HALF) == "fused"
    assert default(4, 8, 1024, 1024, 64, 64, dtype=HALF) == "library"
    assert default(4, 8, 1024, 1024, 64, 64) == "separate"


def test_separate_and_library_are_as_they_were() -> None:
    graph = captured(Written(scaled), qkv(*SIZES))
    assert not any("tiled" in k["mapping"] for k in explain(graph, {KEY: "separate"})["kernels"])
    assert explain(graph, {"library": True})["kernels"] == []


# ---------------------------------------------------------------- builds


def test_builds_of_tiles() -> None:
    text = builds(Written(biased), [*qkv(2, 4, 128, 128, 64, 64), draw(4, 128, 128)], least=1)
    assert kernels_in(text) == 1


@pytest.mark.parametrize(("size", "dtype"), [(64, BRAIN), (128, torch.float32)])
def test_builds_of_causal_tiles(size: int, dtype: torch.dtype) -> None:
    builds(Written(positions), qkv(1, 4, 256, 256, size, size, dtype=dtype), least=1)


def test_builds_of_pieces_of_the_keys() -> None:
    text = builds(Written(where), [*qkv(2, 8, 4, 256, 64, 64, dtype=HALF), seen(2, 1, 4, 256)], least=1)
    assert kernels_in(text) == 2
