"""Reductions of a product's rows: begun in its kernel by tiles, right for every unit, size, NaN and tie."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import author, write
from hipwright.program import parse
from hipwright.toolchain.cpu.sides import Side
from tests.engine.gemm.test_gemm import Of, chosen, draw
from tests.engine.harness import captured, compare, reference, run
from tests.engine.template_builds import program_builds

UNITS: list[tuple[int, Side]] = [(64, "amd"), (32, "amd"), (32, "nvidia"), (64, "")]
LIKE = [torch.empty(2048, 1024), torch.empty(2048, 1024)]
REDUCED: dict[str, Callable[..., Any]] = {
    "place": lambda x, w: (w.square().sum(-1) - 2.0 * (x @ w.t())).argmin(-1),
    "value": lambda x, w: (w.square().sum(-1) - 2.0 * (x @ w.t())).amin(-1) + x.square().sum(-1),
    "value and place": lambda x, w: torch.max(F.linear(x, w), -1),
    "two of one value": lambda x, w: ((y := F.linear(x, w)).amin(-1), y.amax(-1, keepdim=True)),
    "norm": lambda x, w: F.linear(x, w).norm(dim=1),
    "mean of an epilogue": lambda x, w: F.gelu(F.linear(x, w)).mean(-1),
    "exponentials": lambda x, w: torch.logsumexp(3.0 * F.linear(x, w), -1),
    "exponentials and maximum": lambda x, w: (torch.logsumexp(y := F.linear(x, w), -1), y.amax(-1)),
    "rows of a batch": lambda x, w: F.linear(x.unsqueeze(0), w).abs().sum(-1),
}


def begun(model: torch.nn.Module, like: list[torch.Tensor], **choices: Any) -> Any:
    written = write(captured(model, like), {**chosen(model, like, "split"), **choices})
    assert "SplitTile" in written.text
    return written


def stores_product(written: Any) -> bool:
    """Whether the plan has memory for all of the product."""
    return re.search(r"torch\.empty\(\((1, )?(inputs_0_0, inputs_1_0|130, 300)\)", written.text) is not None


@pytest.mark.matrix(keep=9)
@pytest.mark.parametrize("kind", REDUCED)
@pytest.mark.parametrize(("wave", "side"), UNITS)
@pytest.mark.parametrize(("m", "n", "k"), [(130, 300, 40), (1, 257, 33), (7, 128, 130)])
def test_rows_of_any_size(kind: str, m: int, n: int, k: int, wave: int, side: Side) -> None:
    model, inputs = Of(REDUCED[kind]), [draw(m, k), draw(n, k)]
    written = begun(model, LIKE)
    assert "_tiles" in written.text and not stores_product(written), written.text
    got, _ = run(written, model, inputs, wave=wave, side=side)
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)


def test_batches_keep_their_rows() -> None:
    model = Of(lambda x, w: (x @ w.transpose(1, 2)).argmax(-1))
    inputs = [draw(3, 20, 33), draw(3, 260, 33)]
    got, _ = run(begun(model, [torch.empty(4, 512, 512)] * 2), model, inputs)
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)


def test_slices_of_k_are_added_before_a_row_is_reduced() -> None:
    model, like = Of(REDUCED["place"]), [torch.empty(256, 4096), torch.empty(256, 4096)]
    graph, choices = captured(model, like), chosen(model, like, "split")
    (key,) = (name for name in author(graph, choices).space if name.endswith(":slices"))
    written = write(graph, {**choices, key: 4})
    assert "product.combine" in written.text and "_tiles" in written.text
    inputs = [draw(130, 230), draw(270, 230)]
    got, _ = run(written, model, inputs, wave=32, side="nvidia")
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)


LOSSES: dict[str, Callable[..., Any]] = {
    "mean": lambda x, w, t: F.cross_entropy(F.linear(x, w), t),
    "each": lambda x, w, t: F.cross_entropy(F.linear(x, w) * 2, t, reduction="none", ignore_index=5),
    "bias": lambda x, w, t: F.nll_loss(F.log_softmax(F.linear(x, w, w[:, 0]), -1), t, reduction="sum"),
}


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize(("wave", "side"), UNITS)
def test_a_loss_over_a_vocabulary_stores_no_logits(kind: str, wave: int, side: Side) -> None:
    model = Of(LOSSES[kind])
    inputs = [draw(130, 160), draw(300, 160), torch.randint(0, 300, (130,))]
    inputs[2][:4] = torch.tensor([5, 0, 299, 128])
    written = begun(model, inputs)
    assert "_tiles" in written.text and not stores_product(written), written.text
    got, _ = run(written, model, inputs, wave=wave, side=side)
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)


@pytest.mark.parametrize("side", ["nvidia", "amd"])
@pytest.mark.parametrize("kind", ["place", "value and place", "norm", "exponentials"])
def test_ties_infinities_and_nan_are_as_in_a_row(kind: str, side: Side) -> None:
    """Of equal values the first, in and across tiles; NaN wins; a row of infinities has its first place."""
    x, w = draw(12, 32), draw(300, 32)
    w[200:] = w[:100]  # equal columns in other tiles
    w[3] = w[2]
    x[1, 5], x[2, 0] = float("nan"), float("inf")
    w[250, 7] = float("nan")
    x[4] = 0.0
    model = Of(REDUCED[kind])
    got, _ = run(begun(model, LIKE), model, [x, w], wave=32, side=side)
    expected, native, _ = reference(model, [x, w])
    compare(got, expected, native)


def test_a_row_of_infinities_has_its_first_place() -> None:
    model = Of(lambda x, w: (F.linear(x, w) * float("inf")).argmax(-1))
    x, w = -torch.ones(3, 32), torch.ones(300, 32)
    got, _ = run(begun(model, LIKE), model, [x, w])
    assert got.tolist() == [0, 0, 0]


NOT_BEGUN: dict[str, Callable[..., Any]] = {
    "a result of one is read by another": lambda x, w: (
        ((y := F.linear(x, w)) - y.mean(-1, keepdim=True)).square().sum(-1)
    ),
    "the product is returned": lambda x, w: (y := F.linear(x, w), y.amax(-1)),
    "columns are reduced": lambda x, w: F.linear(x, w).amax(0),
    "its rows are read again": lambda x, w: (y := F.linear(x, w)) / y.norm(dim=1, keepdim=True),
}


@pytest.mark.parametrize("kind", NOT_BEGUN)
def test_what_else_reads_the_product_is_left_to_rows(kind: str) -> None:
    model, inputs = Of(NOT_BEGUN[kind]), [draw(20, 40), draw(300, 40)]
    written = begun(model, LIKE)
    assert stores_product(written) and "_tiles = torch.empty" not in written.text
    got, _ = run(written, model, inputs)
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)


def test_the_choice_turns_it_off() -> None:
    assert stores_product(begun(Of(REDUCED["value"]), LIKE, row_tiles=False))


@pytest.mark.parametrize("kind", ["value and place", "norm", "exponentials"])
def test_it_builds_for_every_target_without_scratch(kind: str) -> None:
    program_builds(begun(Of(REDUCED[kind]), LIKE), lambda target: 1)


def test_the_update_of_a_low_rank_adapter_is_not_stored() -> None:
    """DoRA's norm: of W + s B A, of which one number a row is read."""
    model = Of(lambda w, b, a: (w + 0.5 * (b @ a)).norm(dim=1))
    written = begun(model, [torch.empty(4096, 4096), torch.empty(4096, 384), torch.empty(384, 4096)])
    assert "_tiles" in written.text and "torch.empty((inputs_0_0, inputs_0_1)," not in written.text
    inputs = [draw(70, 300), draw(70, 33), draw(33, 300)]
    parse(written.text)
    got, _ = run(written, model, inputs)
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)
