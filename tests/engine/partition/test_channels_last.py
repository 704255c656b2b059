"""Half convolutions of the library with channels last: values, chains that stay turned, views, the default."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hipwright.engine import explain, space, write
from tests.engine.harness import captured, check

HALF = torch.float16
LAYERS = [
    nn.ConvTranspose2d(32, 40, 4, stride=2, padding=1, dtype=HALF),
    nn.Conv2d(32, 64, 3, padding=1, dtype=HALF),
    nn.Conv2d(32, 32, (5, 3), stride=2, dtype=torch.bfloat16, bias=False),
]


class Then(nn.Module):
    """Layers, each with a function behind it."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def turned(*names: str) -> dict[str, bool]:
    return {f"channels_last:{name}": True for name in names}


@pytest.mark.parametrize("layer", [*LAYERS, nn.Conv2d(32, 16, 1, stride=2, dtype=HALF)])
def test_values_for_other_sizes_too(layer: nn.Module) -> None:
    """One of 1 x 1 too where it skips positions: then the library's is no plain product."""
    torch.manual_seed(0)
    kind = "conv_transpose2d" if isinstance(layer, nn.ConvTranspose2d) else "conv2d"
    images = [torch.randn(2, 32, *size, dtype=layer.weight.dtype) for size in ((9, 7), (6, 11))]
    text = check(
        Then(layer),
        images[:1],
        choices={**turned(kind), f"call:{kind}": "library"},
        library=[f"aten.{kind}.default", f"aten.{kind}.input"],
        other=images[1:],
    )
    assert f"{kind}.permute(0, 2, 3, 1).contiguous()" in text


@pytest.mark.parametrize(
    ("layer", "sizes"),
    [
        (nn.Conv2d(3, 16, 7, padding=3, dtype=HALF), [(2, 3, 9, 7), (2, 3, 6, 11)]),
        (nn.ConvTranspose2d(64, 8, (2, 3), padding=1), [(2, 64, 9, 7), (2, 64, 6, 11)]),
    ],
)
def test_few_channels_and_float32(layer: nn.Module, sizes: list[tuple[int, ...]]) -> None:
    """Those for which the library would transform planes."""
    torch.manual_seed(0)
    kind = "conv_transpose2d" if isinstance(layer, nn.ConvTranspose2d) else "conv2d"
    images = [torch.randn(*size, dtype=layer.weight.dtype) for size in sizes]
    choices = {**turned(kind), f"call:{kind}": "library"}
    allowed = [f"aten.{kind}.default", f"aten.{kind}.input"]
    text = check(Then(layer), images[:1], choices=choices, library=allowed, other=images[1:])
    assert f"{kind}.permute(0, 2, 3, 1).contiguous()" in text


def test_a_chain_stays_channels_last() -> None:
    """What one convolution leaves channels last, and a kernel keeps, is not turned for the next."""
    torch.manual_seed(0)
    model = Then(nn.Conv2d(32, 32, 3, padding=1, dtype=HALF), nn.Conv2d(32, 32, 3, padding=1, dtype=HALF))
    x = torch.randn(1, 32, 6, 5, dtype=HALF)
    text = check(model, [x], choices=turned("conv2d", "conv2d_1"), library=["aten.conv2d.default"])
    forward = text[text.index("def forward") :]
    assert forward.count("_last = torch.empty") == 1  # the input: the first activation takes its result's place
    assert "tanh_last_view = conv2d.permute(" in text


@pytest.mark.parametrize("layer", LAYERS)
def test_weights_are_turned_once(layer: nn.Module) -> None:
    """In `prepare`, and one copy for two calls; a weight that is computed is turned where it is computed."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer
            self.scale = nn.Parameter(torch.ones((), dtype=layer.weight.dtype) * 0.5)

        def forward(self, x: torch.Tensor) -> Any:
            call = F.conv_transpose2d if isinstance(layer, nn.ConvTranspose2d) else F.conv2d
            scaled = call(x, layer.weight.to(x.dtype) * x.mean() * 16, stride=2)
            return torch.tanh(self.layer(x)), torch.tanh(self.layer(x * self.scale)), torch.tanh(scaled)

    torch.manual_seed(0)
    kind = "conv_transpose2d" if isinstance(layer, nn.ConvTranspose2d) else "conv2d"
    names = [kind, f"{kind}_1", f"{kind}_2"]
    x = torch.randn(2, 32, 9, 7, dtype=layer.weight.dtype)
    allowed = [f"aten.{kind}.default", f"aten.{kind}.input"]
    text = check(Twice(), [x], choices=turned(*names), library=allowed)
    prepared, forward = text[text.index("def prepare") :].split("def forward")
    assert prepared.count("torch.empty") == 1 and "self.layer.weight" in prepared
    assert forward.count("= self.prepared.") == 1, "one view for both calls"
    assert all("(" not in line or "F.conv" not in line for line in forward.splitlines() if "self.layer.weight" in line)
    without = check(Twice(), [x], choices={**turned(*names), "weights_last": False}, library=allowed)
    assert "def prepare" not in without


def test_the_kernel_that_turns_a_result_adds_the_bias() -> None:
    """Also where the convolution is returned: the library would add it in a pass of its own."""
    torch.manual_seed(0)
    model = nn.Conv2d(32, 64, 3, padding=1, dtype=HALF)
    x = torch.randn(2, 32, 9, 7, dtype=HALF)
    text = check(model, [x], choices=turned("conv2d"), library=["aten.conv2d.default"])
    assert "_view, None, [1, 1], [1, 1])" in text and "self.bias, conv2d" in text
    assert "_view, self.bias, " in check(
        model, [x], choices={**turned("conv2d"), "fuse_bias": False}, library=["aten.conv2d.default"]
    )


def test_a_part_of_an_image_is_no_image() -> None:
    """Both halves of a batch lie in one buffer; the second convolution must not take the whole of it."""
    torch.manual_seed(0)

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(32, 32, 3, padding=1, dtype=HALF)
            self.second = nn.Conv2d(32, 32, 3, dtype=HALF)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.second(self.first(x)[:1]))

    check(
        Halves(),
        [torch.randn(2, 32, 6, 5, dtype=HALF)],
        choices=turned("conv2d", "conv2d_1"),
        library=["aten.conv2d.default"],
    )


DEFAULTS = [
    (nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1, dtype=HALF), (16, 128, 64, 64), True),
    (nn.Conv2d(64, 64, 3, padding=1, dtype=torch.bfloat16), (16, 64, 56, 56), True),
    (nn.Conv2d(64, 64, 3, padding=1, dtype=HALF), (1, 64, 8, 8), False),
    (nn.Conv2d(96, 16, 5, padding=4, dilation=2, dtype=HALF), (8, 96, 96, 64), True),
    (nn.Conv2d(16, 64, 3, dtype=HALF), (8, 16, 96, 64), False),
    (nn.Conv2d(8, 64, 3, dtype=HALF), (8, 8, 96, 64), False),
    (nn.Conv2d(8, 64, 3, dtype=HALF), (32, 8, 96, 64), True),
    (nn.Conv2d(256, 512, 1, stride=2, dtype=HALF), (16, 256, 56, 56), True),
    (nn.Conv2d(64, 64, 3, padding=1), (8, 64, 56, 56), None),
    (nn.Conv2d(64, 64, 1, dtype=HALF), (8, 64, 56, 56), None),
    (nn.Conv2d(64, 64, 3, groups=2, dtype=HALF), (8, 64, 56, 56), None),
    (nn.Conv2d(60, 64, 3, dtype=HALF), (8, 60, 56, 56), None),
    (nn.Conv2d(3, 16, 7, padding=3, dtype=HALF), (32, 3, 128, 128), True),
    (nn.Conv2d(3, 16, 7, padding=3, dtype=HALF), (1, 3, 128, 128), False),
    (nn.Conv2d(3, 64, 7, stride=2, padding=3, dtype=HALF), (32, 3, 128, 128), True),
    (nn.Conv2d(3, 64, 7, stride=2, padding=3, dtype=HALF), (1, 3, 128, 128), False),
    (nn.ConvTranspose2d(128, 16, (2, 3), padding=1), (4, 128, 129, 32), True),
    (nn.ConvTranspose2d(48, 16, (2, 3), padding=1), (4, 48, 129, 32), None),
]


@pytest.mark.parametrize(("layer", "shape", "default"), DEFAULTS)
def test_default_rule(layer: nn.Module, shape: tuple[int, ...], default: bool | None) -> None:
    graph = captured(Then(layer), [torch.empty(shape, dtype=layer.weight.dtype)])
    found = [c.default for k, c in space(graph).items() if k.startswith("channels_last:")]
    assert found == ([] if default is None else [default])
    assert explain(graph)["library"]
    assert (".permute(0, 3, 1, 2)" in write(graph).text) == bool(default)


class Pooled(nn.Module):
    """A pooling between two convolutions, and beside the second."""

    def __init__(self, pool: nn.Module, beside: bool) -> None:
        super().__init__()
        self.pool, self.beside = pool, beside
        self.first, self.second = (nn.Conv2d(32, 32, 3, padding=1, dtype=HALF) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = self.pool(torch.relu(self.first(x)))
        return torch.relu(self.second(pooled) + pooled) if self.beside else torch.relu(self.second(pooled))


@pytest.mark.parametrize("grid", ["vectors", "channels", "flat"])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("pool", [nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2)])
@pytest.mark.matrix(keep=6)
def test_a_pooling_leaves_what_a_convolution_reads(pool: nn.Module, beside: bool, grid: str) -> None:
    """Its result is not turned for the convolution, however its threads are numbered."""
    torch.manual_seed(0)
    model, kind = Pooled(pool, beside), "max_pool2d" if isinstance(pool, nn.MaxPool2d) else "avg_pool2d"
    calls = {f"call:{name}": "library" for name in ("conv2d", "conv2d_1")}
    choices = {**turned("conv2d", "conv2d_1"), **calls, f"call:{kind}": "stencil", f"call:{kind}:grid": grid}
    text = check(
        model,
        [torch.randn(2, 32, 10, 12, dtype=HALF)],
        choices=choices,
        library=["aten.conv2d.default"],
        other=[torch.randn(3, 32, 8, 6, dtype=HALF)],
    )
    assert f"{kind}_last.permute(0, 3, 1, 2)" in text and f"{kind}_last_last" not in text, text
    assert ("of 8 channels" in text) == (grid == "vectors")


def test_a_pooling_whose_result_leaves_is_stored_as_it_is_returned() -> None:
    class Both(Pooled):
        def forward(self, x: torch.Tensor) -> Any:
            pooled = self.pool(torch.relu(self.first(x)))
            return self.second(pooled), pooled

    torch.manual_seed(0)
    choices = {**turned("conv2d", "conv2d_1"), "call:conv2d": "library", "call:conv2d_1": "library"}
    text = check(
        Both(nn.MaxPool2d(2), False),
        [torch.randn(2, 32, 10, 12, dtype=HALF)],
        choices=choices,
        library=["aten.conv2d.default"],
    )
    assert "max_pool2d = torch.empty((x_0, 32" in text, text


class Generator(nn.Module):
    """A linear layer's rows as an image, transposed convolutions, and a convolution to few channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(20, 32 * 16)
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 3, 3, padding=1),
            nn.Tanh(),
        )
        self.to(HALF).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(F.relu(self.first(x)).view(-1, 32, 4, 4))


def test_small_convolutions_between_kernels() -> None:
    """Kernels write and read these images in any case: the library's permutations would be launches of their own."""
    torch.manual_seed(0)
    allowed = ["aten.conv2d.default", "aten.conv_transpose2d.input"]
    calls = {"call:conv_transpose2d": "library", "call:conv2d": "library"}
    text = check(Generator(), [torch.randn(4, 20, dtype=HALF)], choices=calls, library=allowed)
    forward = text[text.index("def forward") :]
    assert forward.count("permute(0, 2, 3, 1).contiguous()") == 2, forward
    assert "self.prepared.layers_0_weight_last" in forward and "self.prepared.layers_3_weight_last" in forward


def test_an_image_of_two_convolutions_is_stored_once() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.Conv2d(32, 32, 3, padding=1, dtype=HALF) for _ in range(2))

        def forward(self, x: torch.Tensor) -> Any:
            image = F.gelu(torch.sin(x))
            return torch.tanh(self.a(image)) + torch.tanh(self.b(image)) + image

    torch.manual_seed(0)
    calls = {"call:conv2d": "library", "call:conv2d_1": "library"}
    text = check(
        Two(),
        [torch.randn(2, 32, 9, 7, dtype=HALF)],
        choices={**turned("conv2d", "conv2d_1"), **calls},
        library=["aten.conv2d.default"],
    )
    forward = text[text.index("def forward") :]
    assert forward.count("x_2, x_3, 32)") == 1, forward
