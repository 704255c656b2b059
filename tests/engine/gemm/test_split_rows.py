"""Reductions of all columns of a product's rows in its blocks' registers: every unit, size, tie, NaN and kept k."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import author, write
from hipwright.engine.knobs import SPLIT, SPLIT_LDS
from hipwright.toolchain.cpu.sides import Side
from tests.engine.gemm.test_gemm import Of, chosen, draw
from tests.engine.gemm.test_row_tiles import LIKE, REDUCED, UNITS
from tests.engine.harness import captured, compare, reference, run
from tests.engine.template_builds import program_builds


def whole(model: torch.nn.Module, like: list[torch.Tensor], **more: Any) -> Any:
    """The program that reduces whole rows. more: further choices; `width` of a tile; `parts`: where A is split."""
    graph, width, parts = captured(model, like), more.pop("width", 128), more.pop("parts", "before")
    choices = {**chosen(model, like, "split"), **more}
    rows = {key: "whole" for key in author(graph, choices).space if key.endswith(":rows")}
    assert rows
    choices |= rows | {
        key.replace(":rows", f":{name}"): v for key in rows for name, v in (("width", width), ("parts", parts))
    }
    written = write(graph, choices)
    assert "multiply_tiles" in written.text and ("_split_a" in written.text) == (parts == "before")
    return written


def verify(written: Any, model: torch.nn.Module, inputs: list[torch.Tensor], **unit: Any) -> Any:
    got, _ = run(written, model, inputs, **unit)
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)
    return got


@pytest.mark.matrix(keep=9)
@pytest.mark.parametrize("kind", REDUCED)
@pytest.mark.parametrize(("wave", "side"), UNITS)
@pytest.mark.parametrize(("m", "n", "k"), [(130, 300, 40), (1, 257, 33), (7, 128, 130)])
@pytest.mark.parametrize(("width", "parts"), [(128, "before"), (64, "before"), (64, "inside")])
def test_rows_of_any_size(kind: str, m: int, n: int, k: int, width: int, parts: str, wave: int, side: Side) -> None:
    model = Of(REDUCED[kind])
    verify(whole(model, LIKE, width=width, parts=parts), model, [draw(m, k), draw(n, k)], wave=wave, side=side)


@pytest.mark.parametrize("ring", [2, 3, 4])
@pytest.mark.parametrize("kept", [0, 2, 8])
@pytest.mark.parametrize("parts", ["before", "inside"])
def test_rows_stay_in_lds_where_k_is_short(ring: int, kept: int, parts: str) -> None:
    """65 numbers are three chunks: more than two, fewer than eight."""
    model = Of(REDUCED["value and place"])
    written = whole(model, LIKE, SPLIT_RING=ring, SPLIT_KEPT=kept, parts=parts)
    for k in (65, 20):
        verify(written, model, [draw(130, k), draw(520, k)], wave=32, side="nvidia", lds_limit=1 << 18)


@pytest.mark.parametrize("side", ["nvidia", "amd"])
@pytest.mark.parametrize("kind", ["place", "value and place", "norm", "exponentials"])
def test_ties_infinities_and_nan_are_as_in_a_row(kind: str, side: Side) -> None:
    """Of equal values the first, in and across tiles and lanes; NaN wins; a row of infinities has its first place."""
    x, w = draw(12, 32), draw(300, 32)
    w[200:] = w[:100]
    w[3] = w[2]
    x[1, 5], x[2, 0] = float("nan"), float("inf")
    w[250, 7] = float("nan")
    x[4] = 0.0
    model = Of(REDUCED[kind])
    verify(whole(model, LIKE), model, [x, w], wave=32, side=side)


def test_a_row_of_infinities_has_its_first_place() -> None:
    model = Of(lambda x, w: (F.linear(x, w) * float("inf")).argmax(-1))
    got, _ = run(whole(model, LIKE), model, [-torch.ones(3, 32), torch.ones(300, 32)])
    assert got.tolist() == [0, 0, 0]


@pytest.mark.parametrize("exponent", [-100, 100])
def test_scales_of_rows_and_columns_far_apart(exponent: int) -> None:
    model = Of(REDUCED["value"])
    x, w = draw(9, 40) * 2.0**exponent, draw(300, 40) * 2.0**-exponent
    verify(whole(model := Of(lambda x, w: F.linear(x, w).amin(-1)), LIKE), model, [x, w], wave=32, side="nvidia")


def test_batches_keep_their_rows() -> None:
    model = Of(lambda x, w: (x @ w.transpose(1, 2)).argmax(-1))
    verify(whole(model, [torch.empty(4, 512, 512)] * 2), model, [draw(3, 20, 33), draw(3, 260, 33)])


def test_a_loss_over_a_vocabulary_stores_no_logits() -> None:
    model = Of(lambda x, w, t: F.cross_entropy(F.linear(x, w), t))
    inputs = [draw(130, 160), draw(300, 160), torch.randint(0, 300, (130,))]
    verify(whole(model, inputs), model, inputs)


def test_when_it_is_the_default() -> None:
    """Where the blocks of rows alone fill a device; then the LDS of its GPUs says what is kept."""

    def default(rows: int, columns: int = 1024, **more: Any) -> Any:
        model = Of(REDUCED["place"])
        return author(captured(model, [torch.empty(rows, 128), torch.empty(columns, 128)]), {SPLIT: True, **more})

    for rows, columns, expected in ((1 << 17, 1024, "whole"), (1 << 12, 1024, "tiles"), (1 << 13, 1 << 13, "tiles")):
        found = {key: choice.default for key, choice in default(rows, columns).space.items() if key.endswith(":rows")}
        assert list(found.values()) == [expected]
    for lds, ring, kept in ((0, 2, 0), (101376, 4, 4), (232448, 4, 4)):
        text = default(1 << 17, **{SPLIT_LDS: lds}).program.text
        assert f"SPLIT_RING = knob({ring}," in text and f"SPLIT_KEPT = knob({kept}," in text


@pytest.mark.parametrize("width", [128, 64])
@pytest.mark.parametrize("kind", ["value and place", "exponentials"])
@pytest.mark.parametrize("parts", ["before", "inside"])
def test_it_builds_for_every_target_without_scratch(kind: str, width: int, parts: str) -> None:
    program_builds(whole(Of(REDUCED[kind]), LIKE, width=width, parts=parts), lambda target: 1)
