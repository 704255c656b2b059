"""Rows of a float32 product that its own blocks split: any size and magnitude, infinities, results, and the memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import author, write
from hipwright.engine.knobs import SPLIT, SPLIT_LDS
from hipwright.measure.memory import plan_memory
from hipwright.program import parse
from hipwright.program.lower.trace import trace
from hipwright.toolchain.cpu.sides import Side
from tests.engine.gemm.test_gemm import Of, chosen, draw
from tests.engine.gemm.test_split_precision import LIKE, UNITS
from tests.engine.harness import captured, compare, reference, run
from tests.engine.template_builds import program_builds

SHORT = [torch.empty(2048, 128), torch.empty(512, 128)]
H200 = {SPLIT: True, SPLIT_LDS: 232448}


def inside(model: torch.nn.Module, like: list[torch.Tensor] = SHORT, **more: Any) -> Any:
    """The program whose blocks split the rows of A. more: further choices; `width`: columns of a tile."""
    graph, width = captured(model, like), more.pop("width", 64)
    choices = chosen(model, like, "split")
    choices |= {key: "whole" for key in author(graph, choices).space if key.endswith(":rows")}
    choices |= {key: "inside" for key in author(graph, choices).space if key.endswith(":parts")}
    choices |= {key: width for key in author(graph, choices).space if key.endswith(":width")}
    written = write(graph, {**choices, **more})
    assert "rows_split_inside" in written.text and "_split_a" not in written.text
    return written


def verify(written: Any, model: torch.nn.Module, inputs: list[torch.Tensor], **unit: Any) -> Any:
    got, _ = run(written, model, inputs, **unit)
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)
    return got


@pytest.mark.matrix(keep=6)
@pytest.mark.parametrize(("wave", "side"), UNITS)
@pytest.mark.parametrize(("m", "n", "k"), [(130, 70, 40), (1, 64, 33), (300, 129, 128), (128, 200, 7)])
@pytest.mark.parametrize("width", [64, 128])
def test_stored_rows_of_any_size(m: int, n: int, k: int, width: int, wave: int, side: Side) -> None:
    model = Of(lambda x, w: F.gelu(F.linear(x, w)) + 1)
    verify(inside(model, width=width), model, [draw(m, k), draw(n, k)], wave=wave, side=side)


@pytest.mark.parametrize("ring", [2, 3, 4])
@pytest.mark.parametrize("kept", [0, 2, 4, 8])
def test_what_stays_in_lds(ring: int, kept: int) -> None:
    """One chunk of k, three and five, of which none, some or all fit; numbers beside vectors, and after a prologue."""
    model = Of(lambda x, w: F.linear(torch.relu(x), w, w[:, 0]))
    written = inside(model, SPLIT_RING=ring, SPLIT_KEPT=kept)
    for k in (20, 65, 132):
        verify(written, model, [draw(130, k), draw(140, k)], wave=32, side="nvidia", lds_limit=1 << 18)


def test_batches_and_several_results() -> None:
    model = Of(lambda x, w: ((y := x @ w.transpose(1, 2)), torch.sigmoid(y) * 2))
    written = inside(model, [torch.empty(2, 256, 128), torch.empty(2, 256, 128)])
    verify(written, model, [draw(2, 130, 36), draw(2, 70, 36)], wave=32, side="nvidia")


@pytest.mark.parametrize(("wave", "side"), UNITS)
@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("kept", [0, 4])
def test_rows_of_any_magnitude(reduced: bool, kept: int, wave: int, side: Side) -> None:
    """Blocks of rows and rows of a block 2^60 apart, rows of zeros and of subnormal numbers: each has its own scale."""
    x, w = draw(260, 100), draw(70, 100)
    x[128:] *= 2.0**60
    x[64:68] *= 2.0**-60
    x[5], x[6] = 0.0, x[6] * 2.0**-130
    model = Of((lambda x, w: F.linear(x, w).amax(-1)) if reduced else F.linear)
    written = inside(model, LIKE if reduced else SHORT, SPLIT_KEPT=kept)
    got, _ = run(written, model, [x, w], wave=wave, side=side, lds_limit=1 << 18)
    exact, size = F.linear(x.double(), w.double()), F.linear(x.double().abs(), w.double().abs())
    native = ((F.linear(x, w) - exact).abs() / size.clamp(min=1e-300))[size > 2.0**-100].max()
    exact, size = (exact.amax(-1), size.amax(-1)) if reduced else (exact, size)
    assert ((got - exact).abs() <= size * max(2 * native, 2.0**-22) + 1e-43).all()
    assert (got[5] == 0).all()


@pytest.mark.parametrize("side", ["amd", "nvidia"])
@pytest.mark.parametrize("kept", [0, 4])
@pytest.mark.parametrize("reduced", [False, True])
def test_infinities_and_nans_are_those_of_float32(reduced: bool, kept: int, side: Side) -> None:
    x, w = draw(5, 40), draw(6, 40)
    x[1, 3], x[2, 4], x[3, 5], w[2, 0] = float("inf"), float("nan"), -float("inf"), float("inf")
    x[4] *= 1e37
    model = Of((lambda x, w: F.linear(x, w).amin(-1)) if reduced else F.linear)
    written = inside(model, LIKE if reduced else SHORT, SPLIT_KEPT=kept)
    got, _ = run(written, model, [x, w], wave=64 if side == "amd" else 32, side=side, lds_limit=1 << 18)
    exact = F.linear(x.double(), w.double())
    torch.testing.assert_close(got, (exact.amin(-1) if reduced else exact).float(), equal_nan=True)


@pytest.mark.parametrize("width", [64, 128])
def test_it_builds_for_every_target_without_scratch(width: int) -> None:
    model = Of(lambda x, w: F.gelu(F.linear(x, w, w[:, 0])))
    program_builds(inside(model, width=width), lambda target: 1)


def test_when_it_is_the_default() -> None:
    """Where all of k stays in LDS; for rows that are stored, only where few columns make B's part the smaller one."""

    def default(model: torch.nn.Module, *shapes: tuple[int, int], **more: Any) -> str | None:
        graph = captured(model, [torch.empty(shape) for shape in shapes])
        space = author(graph, {**chosen(model, [torch.empty(shape) for shape in shapes], "split"), **more}).space
        return next((choice.default for key, choice in space.items() if key.endswith(":parts")), None)

    place = Of(lambda x, w: F.linear(x, w).argmax(-1))
    assert default(place, (1 << 17, 128), (1024, 128), **H200) == "inside"
    assert default(place, (1 << 17, 128), (1024, 128), **{SPLIT: True}) == "before"
    assert default(place, (1 << 17, 512), (1024, 512), **H200) == "before"
    linear = Of(F.linear)
    assert default(linear, (1 << 18, 128), (128, 128), **H200) == "inside"
    assert default(linear, (1 << 18, 128), (128, 128)) == "before"
    assert default(linear, (1 << 12, 128), (512, 128), **H200) == "before"
    assert default(linear, (1 << 12, 512), (512, 512), **H200) is None


def test_the_assignment_of_k_means_stores_no_parts_of_its_points() -> None:
    """Of 131072 points of 128 numbers 67 MB of parts are not stored; what is beside the places is less than 8 MB."""
    model = Of(lambda x, w: (w.square().sum(dim=-1) - 2.0 * x @ w.t()).argmin(dim=-1))
    inputs = [torch.empty(1 << 17, 128, device="meta"), torch.empty(1024, 128, device="meta")]
    graph = captured(model, inputs)
    (key,) = (key for key in author(graph, H200).space if key.endswith(":parts"))

    def workspace(parts: str) -> int:
        program = write(graph, {**H200, key: parts})
        found = trace(parse(program.text), program.knobs, {}, inputs)
        places = {"shape": [1 << 17], "dtype": "int64"}
        return int(
            plan_memory(found["ops"], [places], 4.0 * 128 * ((1 << 17) + 1024), found["live"])["workspace_bytes"]
        )

    assert workspace("inside") < 8e6 and workspace("before") > 67e6
