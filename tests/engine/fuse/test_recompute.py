"""Values between kernels: joined with the kernel that reads them, computed again where that moves less, else stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import explain, space, write
from tests.engine.harness import Op, captured, check, compare, reference, run
from tests.engine.template_builds import builds


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5)).to(dtype)


def kernels(function: Callable[..., Any], *inputs: torch.Tensor, **choices: Any) -> list[list[str]]:
    """The operators of each kernel."""
    return [k["nodes"] for k in explain(captured(Op(function), inputs), choices)["kernels"]]


def again(function: Callable[..., Any], *inputs: torch.Tensor) -> list[str]:
    """The values that may be computed again, or stored."""
    return [k.partition(":")[2] for k in space(captured(Op(function), inputs)) if k.startswith("intermediate:")]


def rms_gradient(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    g = grad * weight
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    unit = x * scale
    return scale * (g - unit * (g * unit).mean(-1, keepdim=True))


@pytest.mark.parametrize(("wave", "width"), [(32, 61), (64, 512)])
def test_a_product_of_inputs_joins_the_row_that_reads_it_later(wave: int, width: int) -> None:
    """It is met before the row's reductions, with nothing in common with the first."""
    inputs = [draw(9, width), draw(9, width) + 3, draw(width)]
    assert len(kernels(rms_gradient, *inputs)) == 1
    check(Op(rms_gradient), inputs, wave=wave, other=[t[: t.shape[0]] if t.dim() == 1 else t[:5] for t in inputs])


@pytest.mark.parametrize("turned", [True, False])
def test_a_large_value_that_turns_rows_is_stored(turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recomputed, both reductions would read its input across memory."""
    monkeypatch.setattr("hipwright.engine.fuse.recompute.CACHED", 1024)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x.permute(0, 3, 1, 2) if turned else x)
        a, b = y.chunk(2, 1)
        z = F.layer_norm(F.silu(a) + b, a.shape[1:])
        return z - z.amax((2, 3), keepdim=True)

    x = draw(3, 6, 20, 8) if turned else draw(3, 8, 6, 20)
    defaults = {k: c.default for k, c in space(captured(Op(function), [x])).items()}
    assert defaults["intermediate:tanh"] == ("stored" if turned else "recompute")
    check(Op(function), [x])


def test_no_joining_past_a_library_call() -> None:
    """The product's other reader is a library call that the row waits for: joined, the kernel would wait for itself."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        p = x * y + 1
        order = torch.sort(p, dim=-1, stable=True).values.cumsum(0).sort(0).values
        return torch.softmax(order, -1) + (p * order).sum(-1, keepdim=True)

    check(
        Op(function),
        [draw(6, 5000), draw(6, 5000)],
        choices={"call:sort": "library", "call:sort_1": "library"},
        library=("aten.sort.default", "aten.sort.stable"),
    )


def norm_gradients(grad: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor) -> Any:
    unit = (x - mean) * rstd
    return rstd * (grad - unit * (grad * unit).mean(-1, keepdim=True)), (grad * unit).sum(0), grad.sum(0)


@pytest.mark.parametrize("wave", [32, 64])
def test_two_reductions_of_different_dimensions_compute_their_input_each(wave: int) -> None:
    """Stored, it would cost a store and a load; x alone is a load."""
    inputs = [draw(300, 48), draw(300, 48), draw(300, 1), draw(300, 1).abs()]
    (name,) = again(norm_gradients, *inputs)
    text = check(Op(norm_gradients), inputs, wave=wave)
    assert f"{name} = torch.empty" not in text
    stored = check(Op(norm_gradients), inputs, wave=wave, choices={f"intermediate:{name}": "stored"})
    assert f"{name} = torch.empty" in stored


def slopes(image: torch.Tensor) -> torch.Tensor:
    """Sobel: three rows summed at two places, three columns at two."""
    wide = image.float()
    rows = wide[:, :-2] + 2.0 * wide[:, 1:-1] + wide[:, 2:]
    fall = wide[:, 2:] - wide[:, :-2]
    down = fall[..., :-2] + 2.0 * fall[..., 1:-1] + fall[..., 2:]
    return (down * down + (rows[..., 2:] - rows[..., :-2]).square()).sqrt().to(image.dtype)


def upwind(u: torch.Tensor, speed: torch.Tensor) -> torch.Tensor:
    padded = F.pad(u, (1, 1))
    return u - torch.where(speed > 0, speed * (u - padded[..., :-2]), speed * (padded[..., 2:] - u))


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize(
    ("function", "shapes", "smaller", "dtype"),
    [(slopes, [(2, 19, 70)], [(1, 3, 3)], torch.float16), (upwind, [(5, 33)] * 2, [(2, 1)] * 2, torch.float32)],
    ids=["sobel", "upwind"],
)
def test_stencils_on_what_is_made_of_their_input_are_one_kernel(
    function: Any, shapes: Any, smaller: Any, dtype: torch.dtype, wave: int
) -> None:
    inputs, other = ([draw(*shape, dtype=dtype) for shape in given] for given in (shapes, smaller))
    assert len(kernels(function, *inputs)) == 1
    check(Op(function), inputs, wave=wave, other=other)
    stored = {f"intermediate:{name}": "stored" for name in again(function, *inputs)}
    check(Op(function), inputs, wave=wave, choices=stored)
    assert len(kernels(function, *inputs, **stored)) >= 2


def shallow(height: torch.Tensor, speed: torch.Tensor, other: torch.Tensor) -> Any:
    """Fluxes of a periodic field at four neighbours, for three results over the same inputs."""
    flux, cross = speed * speed / height + 0.5 * height * height, speed * other / height
    across = 0.5 * (flux.roll(-1, 0) - flux.roll(1, 0) + cross.roll(-1, 1) - cross.roll(1, 1))
    along = 0.5 * (cross.roll(-1, 0) - cross.roll(1, 0) + (other * other / height).roll(-1, 1))
    return height.roll(1, 0) - speed.roll(-1, 1), speed.roll(1, 1) - across, other.roll(1, 0) - along


@pytest.mark.parametrize("wave", [32, 64])
def test_a_periodic_stencil_of_fluxes_reads_each_field_once(wave: int) -> None:
    """Borders that wrap divide nothing, and what is left of the kernel that stored the fluxes joins their readers'."""
    inputs = [draw(12, 20).abs() + 1, draw(12, 20), draw(12, 20) * 0.5]
    assert len(kernels(shallow, *inputs)) == 1
    check(Op(shallow), inputs, wave=wave, other=[t[:1, :3] for t in inputs])
    stored = {f"intermediate:{name}": "stored" for name in again(shallow, *inputs)}
    assert len(kernels(shallow, *inputs, **stored)) == 2
    check(Op(shallow), inputs, wave=wave, choices=stored)


def heavy(x: torch.Tensor, y: torch.Tensor, parts: int) -> torch.Tensor:
    """A value of some arithmetic that a reader of the same inputs reads at two places."""
    z = x * y
    for k in range(parts):
        z = z * x + (y - k)
    return z[1:] - z[:-1] + x[1:] * y[1:]


def test_operations_are_repeated_for_the_bytes_they_save() -> None:
    """A float64 saves twice the bytes of a float32, and pays for more operations."""
    for dtype, parts, count in ((torch.float32, 3, 1), (torch.float32, 8, 2), (torch.float64, 8, 1)):
        inputs = [draw(40, 32, dtype=dtype), draw(40, 32, dtype=dtype)]
        assert len(kernels(lambda x, y, n=parts: heavy(x, y, n), *inputs)) == count, (dtype, parts)


def test_not_a_number_and_infinities_beside_the_padding() -> None:
    x, speed = draw(3, 40), draw(3, 40)
    x[0, 0], x[1, -1], x[2, 7], speed[0, 1] = torch.inf, torch.nan, -torch.inf, torch.nan
    check(Op(upwind), [x, speed])


def dear(x: torch.Tensor) -> torch.Tensor:
    """Three of these an element would be more arithmetic than the memory's time hides."""
    y = torch.tanh(x) * torch.erf(x) + torch.sin(x) * torch.exp(-x * x) + torch.sigmoid(x)
    return y[2:] + y[:-2] - 2 * y[1:-1]


def returned(x: torch.Tensor, y: torch.Tensor) -> Any:
    """The value is wanted itself."""
    z = (x + y) * x - y
    return z, z[1:] - z[:-1]


def gathered(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """A gathered row, shifted: the reads are not in order, and not the second time either."""
    z = x[place] * 2 + 1 - x[place].square()
    return z[1:] - z[:-1]


def many(*inputs: torch.Tensor) -> torch.Tensor:
    """Six inputs would be read for one."""
    z = inputs[0] * inputs[1] + inputs[2] * inputs[3] + inputs[4] * inputs[5]
    return z[1:] - z[:-1]


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (dear, [draw(60, 40)]),
        (returned, [draw(9, 40), draw(9, 40)]),
        (gathered, [draw(9, 40), torch.tensor([3, 1, 8, 8, 0])]),
        (many, [draw(9, 40) + k for k in range(6)]),
    ],
    ids=["dear", "returned", "gathered", "many"],
)
def test_what_is_dear_wanted_or_gathered_is_stored(function: Any, inputs: list[torch.Tensor]) -> None:
    assert again(function, *inputs) == []
    assert len(kernels(function, *inputs)) >= 2
    check(Op(function), inputs)


def test_a_buffer_that_is_overwritten_is_read_before() -> None:
    """The running value goes into what is computed from it before it changes."""

    class Shifted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("last", draw(30, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = (x - self.last) * 2 + x * self.last
            out = y[1:] - y[:-1]
            self.last.copy_(x)
            return out

    model, x = Shifted(), draw(30, 8) + 1
    program = write(captured(model, [x]))
    expected, native, _ = reference(model, [x])
    got, tensors = run(program, model, [x])
    compare(got, expected, native)
    assert torch.equal(tensors["last"], x)


def triplet(anchor: torch.Tensor, near: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
    close = F.cosine_similarity(anchor.float(), near.float(), dim=-1)
    apart = F.cosine_similarity(anchor.float(), far.float(), dim=-1)
    return torch.relu(apart - close + 0.2).mean()


@pytest.mark.parametrize(("wave", "dtype"), [(32, torch.float16), (64, torch.float32)])
def test_a_mean_over_rows_reads_one_value_a_row(wave: int, dtype: torch.dtype) -> None:
    """Not five sums, which one block would divide for all rows."""
    inputs = [draw(70, 40, dtype=dtype) + k for k in range(3)]
    other = [t[:1, :7] for t in inputs]
    text = check(Op(triplet), inputs, wave=wave, other=other)
    assert len(kernels(triplet, *inputs)) == 2
    last = text[text.rindex('extern "C"') :]
    assert last[: last.index("{")].count("const float* __restrict__") == 1


def test_places_over_rows_read_what_they_compare() -> None:
    """The largest of the rows' ratios: its place needs no copy of the ratios, and integers have none."""

    def function(x: torch.Tensor) -> Any:
        return (x.sum(1) / x.abs().amax(1)).argmax(), (x > 0).sum(1).add((x < -1).sum(1)).sum()

    inputs = [draw(33, 20)]
    check(Op(function), inputs)
    names = [node for nodes in kernels(function, *inputs) for node in nodes]
    assert not any(name.endswith("_row") for name in names)


def test_rows_without_elements() -> None:
    check(Op(triplet), [draw(5, 6), draw(5, 6), draw(5, 6)], other=[draw(5, 0)] * 3)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (rms_gradient, [draw(64, 4096, dtype=torch.bfloat16), draw(64, 4096, dtype=torch.bfloat16), draw(4096)]),
        (slopes, [draw(2, 130, 1026, dtype=torch.float16)]),
        (triplet, [draw(2048, 768, dtype=torch.float16)] * 3),
    ],
    ids=["rms", "sobel", "triplet"],
)
def test_builds(function: Any, inputs: list[torch.Tensor]) -> None:
    builds(Op(function), inputs, least=1)


def test_a_gate_of_two_halves_computes_each_element_once() -> None:
    """However heavy it is: no element is read twice, so that nothing is repeated."""

    def gated(x: torch.Tensor) -> torch.Tensor:
        a, b = torch.exp(-F.mish(x).square()).chunk(2, -1)
        return F.logsigmoid(a * b)

    x = torch.randn(9, 64, generator=torch.Generator().manual_seed(2))
    program = write(captured(Op(gated), [torch.empty(128, 8192)]), {"exact": False})
    assert program.text.count('extern "C"') == 1
    expected, native, _ = reference(Op(gated), [x])
    compare(run(program, Op(gated), [x])[0], expected, native)
