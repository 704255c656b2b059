"""Knobs are macros of the whole program: no constant or parameter of device code may have the name of one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import hipwright
from hipwright.engine import author
from hipwright.engine.knobs import KNOBS
from tests.engine.harness import captured, check

PACKAGE = Path(hipwright.__file__).parent
SOURCES = [*(PACKAGE / "engine").rglob("*.py"), *(PACKAGE / "toolchain" / "include").rglob("*.h")]
OFFERED = re.compile(r"knob\(\s*\"([A-Z][A-Z0-9_]*)\"")


def constants(text: str) -> set[str]:
    """Names in capitals that a text declares: constants, and parameters of templates."""
    found = {name for line in re.findall(r"constexpr [^;]*;", text) for name in re.findall(r"\b([A-Z]\w*) =", line)}
    heads = re.findall(r"template <([^>]*)>", text)
    return found | {name for head in heads for name in re.findall(r"(?:int|bool|unsigned) ([A-Z]\w*)", head)}


def test_no_constant_of_device_code_is_named_as_a_knob() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    knobs = set(KNOBS) | {name for text in texts.values() for name in OFFERED.findall(text)}
    assert len(knobs) > 30
    same = {str(path): constants(text) & knobs for path, text in texts.items()}
    assert sum(len(constants(text)) for text in texts.values()) > 50, "the pattern finds constants"
    assert not {path: names for path, names in same.items() if names}


class Beside(torch.nn.Module):
    """A heavy operator beside kernels whose knobs are LANES and VEC."""

    def __init__(self, heavy: torch.nn.Module) -> None:
        super().__init__()
        self.heavy = heavy

    def forward(self, x: torch.Tensor, rows: torch.Tensor, wide: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.heavy(x), rows.softmax(-1), torch.tanh(wide)


class Attention(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x + 1, x * 2)


class Columns(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 0)


HEAVY = {
    "a product": (torch.nn.Linear(64, 12), (9, 64)),
    "a convolution": (torch.nn.Conv2d(16, 24, 3), (2, 16, 9, 9)),
    "attention": (Attention(), (2, 2, 17, 32)),
    "a scan of columns": (Columns(), (700, 9)),
}


LIBRARY = ["aten.linear.default", "aten.conv2d.default", "aten.scaled_dot_product_attention.default"]


@pytest.mark.parametrize("name", HEAVY)
def test_templates_stand_beside_each_other(name: str) -> None:
    heavy, shape = HEAVY[name]
    model = Beside(heavy)
    inputs = [torch.randn(shape), torch.randn(70, 33), torch.randn(256, 512).half()]
    made = author(captured(model, inputs))
    calls = {key: choice for key, choice in made.space.items() if key.startswith(("call:", "map:"))}
    tried = [{}, *({key: option} for key, choice in calls.items() for option in choice.options)]
    for choices in tried[:8]:
        check(model, inputs, choices=choices, library=LIBRARY)
