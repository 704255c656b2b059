"""Products of the library in the forms that it is fast in: padded terms, and activations as epilogues."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hipwright.engine import author
from hipwright.engine.knobs import SPLIT
from hipwright.engine.rewrite import library_epilogues, padded_products
from tests.engine.harness import captured, compare, reference, run

HALF, BRAIN = torch.float16, torch.bfloat16
EPILOGUE = "torch.ops.aten._addmm_activation"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded_products, "LEAST_OPERATIONS", 1e4)
    monkeypatch.setattr(library_epilogues, "LEAST", 64)


def checked(model: nn.Module, inputs: list[Any], *others: list[Any], **choices: Any) -> str:
    """The text of the program for NVIDIA runs, whose results are right for all these inputs."""
    program = author(captured(model, inputs), {SPLIT: True, **choices}).program
    for given in (inputs, *others):
        expected, native, _ = reference(model, given)
        compare(run(program, model, given)[0], expected, native)
    return program.text


def drawn(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


class Layers(nn.Module):
    def __init__(self, *sizes: int, activation: Any = torch.relu, dtype: torch.dtype = HALF) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList(nn.Linear(a, b, dtype=dtype) for a, b in pairwise(sizes))
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


@pytest.mark.parametrize("dtype", [HALF, BRAIN])
def test_an_odd_number_of_terms_is_padded(dtype: torch.dtype) -> None:
    text = checked(Layers(79, 48, 8, dtype=dtype), [drawn(20, 79, dtype=dtype)], [drawn(33, 79, dtype=dtype)])
    assert "def prepare" in text and "self.prepared." in text and text.count("_padded = torch.empty") == 2
    assert "(x_0, 80)" in text


@pytest.mark.parametrize("bias", [True, False])
def test_products_of_two_values_are_padded(bias: bool) -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(drawn(77, 64))

        def forward(self, a: torch.Tensor) -> torch.Tensor:
            return torch.addmm(self.weight[0], a.sin(), self.weight) if bias else a.sin() @ self.weight

    text = checked(Product(), [drawn(40, 77)], **{"call:matmul": "library", "call:addmm": "library"})
    assert "sin_padded = torch.empty" in text and "sin = torch.empty" not in text, "the copy is the sine's own kernel"


class Head(nn.Module):
    """A head over an odd vocabulary, read by kernels, or returned."""

    def __init__(self, words: int, terms: int, *, bias: bool = True, returned: bool = False) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.out, self.returned = nn.Linear(terms, words, bias=bias, dtype=HALF), returned

    def forward(self, x: torch.Tensor) -> Any:
        scores = self.out(x)
        return (scores, scores.argmax(-1)) if self.returned else torch.log_softmax(scores, dim=-1)


@pytest.mark.parametrize("terms", [64, 79])
@pytest.mark.parametrize("bias", [True, False])
def test_columns_that_kernels_read_are_padded(terms: int, bias: bool) -> None:
    chosen = {"call:linear_padded": "library"}
    text = checked(Head(101, terms, bias=bias), [drawn(3, 20, terms)], [drawn(2, 7, terms)], **chosen)
    assert "(104, 64)" in text or "(104, 80)" in text
    assert "linear_padded = F.linear(" in text and text.count("self.prepared.") == 1


def test_columns_that_are_returned_are_not_padded() -> None:
    text = author(captured(Head(101, 64, returned=True), [drawn(20, 64)]), {SPLIT: True}).program.text
    assert "linear_padded" not in text


def test_a_loss_reads_padded_columns() -> None:
    class Loss(Head):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
            return F.cross_entropy(self.out(x).float(), labels)

    labels = torch.randint(0, 101, (20,), generator=torch.Generator().manual_seed(1))
    assert "linear_padded" in checked(Loss(101, 64), [drawn(20, 64), labels])


def test_what_is_not_padded() -> None:
    def keys(model: nn.Module, inputs: list[Any], **choices: Any) -> list[str]:
        space = author(captured(model, inputs), {SPLIT: True, **choices}).space
        return [key for key in space if key.startswith("pad:")]

    assert keys(Layers(79, 48), [drawn(20, 79)]) == ["pad:linear"]
    assert keys(Layers(80, 48), [drawn(20, 80)]) == []
    assert keys(Layers(33, 48), [drawn(20, 33)]) == [], "few terms"
    assert keys(Layers(79, 48, dtype=torch.float32), [drawn(20, 79, dtype=torch.float32)]) == []
    assert "_padded" not in checked(Layers(79, 48), [drawn(20, 79)], **{"pad:linear": False})
    assert "_padded" not in author(captured(Layers(79, 48), [drawn(20, 79)])).program.text


@pytest.mark.parametrize("shape", [(20, 64), (3, 7, 64), (2, 3, 5, 64)])
@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_an_activation_that_products_read_is_an_epilogue(shape: tuple[int, ...], name: str) -> None:
    activation = torch.relu if name == "relu" else lambda x: F.gelu(x, approximate="tanh")
    other = [drawn(5, *shape[1:])]
    text = checked(Layers(64, 96, 48, 32, activation=activation), [drawn(*shape)], other)
    assert text.count(EPILOGUE) == 2 and f"use_gelu={name == 'gelu'}" in text


def test_an_epilogue_of_padded_terms() -> None:
    text = checked(Layers(79, 96, 32), [drawn(20, 79)])
    assert EPILOGUE in text and "x_padded" in text and "self.prepared." in text


def test_activations_that_kernels_read_stay_with_them() -> None:
    model = Layers(64, 96, 48, activation=lambda x: F.gelu(x))
    assert EPILOGUE not in checked(model, [drawn(20, 64)]), "GELU by the error function is no epilogue"

    class Residual(Layers):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.layers[0](x)) + x

    assert EPILOGUE not in checked(Residual(64, 64), [drawn(20, 64)])
    assert EPILOGUE not in checked(Layers(64, 96, 32), [drawn(20, 64)], **{"epilogue:linear": False})
    assert EPILOGUE not in author(captured(Layers(64, 96, 32), [drawn(20, 64)])).program.text


def test_a_value_that_is_not_finite_is_passed_on() -> None:
    x = drawn(20, 79)
    x[3, 2], x[4, 5] = float("inf"), float("nan")
    model = Layers(79, 96, 32)
    program = author(captured(model, [x]), {SPLIT: True}).program
    native = reference(model, [x])[1]
    found = run(program, model, [x])[0]
    assert torch.equal(found.isnan(), native.isnan())
