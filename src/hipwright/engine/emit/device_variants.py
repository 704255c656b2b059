"""Device definitions that are derived from another one of engine/device by replacing parts of its text.

C++ has no short way to write them: a function for double beside the one for float, whose calls lose their suffix f; the
minimum beside the maximum; a pair of bfloat16 beside one of float16; a difference of products that must not be
contracted into a fused multiply-add.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hipwright.engine.emit.c_names import LIBRARY


@dataclass(frozen=True)
class DefinitionVariant:
    """The definition `key`: the text of the definition `of` with each part replaced that `replace` names."""

    key: str
    of: str
    replace: Mapping[str, str]
    instead: Mapping[str, str] = field(default_factory=dict)  # of the original's directives

    def directives(self, original: Mapping[str, str]) -> dict[str, str]:
        """The variant's directives (device_code.py)."""
        return {**original, "key": self.key, **self.instead}

    def text(self, original: str) -> str:
        """The variant's text. Raises ValueError where the original does not hold what is to be replaced."""
        for part, other in self.replace.items():
            if part not in original:
                raise ValueError(f"{self.of} in engine/device does not hold {part!r}, which {self.key} replaces")
            original = original.replace(part, other)
        return original


VARIANTS = (
    DefinitionVariant(
        "ArgMin",
        "ArgMax",
        {
            "struct ArgMax": "struct ArgMin",
            "Selects the larger value; NaN counts as larger": "Selects the smaller value; NaN counts as smaller",
            "b.value > a.value": "b.value < a.value",
            "value <= best.value": "value >= best.value",
        },
    ),
    DefinitionVariant(
        "wave_reduce_argmin", "wave_reduce_argmax", {"ArgMax": "ArgMin", ": order;": ": ~order;", "= best;": "= ~best;"}
    ),
    DefinitionVariant(
        "block_reduce_argmin",
        "block_reduce_argmax",
        {"ArgMax": "ArgMin"},
        {"with": "wave_reduce_argmin", "when": "block_reduce ArgMin"},
    ),
    DefinitionVariant(
        "store_vector_bfloat16",
        "store_vector_float16",
        {"__half2 ": "__hip_bfloat162 ", "__half": "__hip_bfloat16", "__float22half2_rn": "__float22bfloat162_rn"},
    ),
    DefinitionVariant(
        "add_products_to_moments",
        "add_tile_moments",
        {
            "Adds the first `count` values of a tile": "As add_tile, for values that are products, rounded first",
            "add_tile": "add_products_to_moments",
            "v[k] - pivot": "sub_rn(v[k], pivot)",
        },
    ),
    DefinitionVariant(
        "softmax_of_products",
        "softmax_of_tile",
        {"softmax_of_tile": "softmax_of_products", "values[k] - shift": "sub_rn(values[k], shift)"},
    ),
    DefinitionVariant(
        "add_products_to_softmax",
        "add_tile_softmax",
        {"add_tile": "add_products_to_softmax", "softmax_of_tile": "softmax_of_products"},
    ),
)


_MATH = re.compile(r"\b(" + "|".join(sorted([*LIBRARY, "fmod", "fabs"], key=len, reverse=True)) + r")f\(")


def as_double(text: str) -> str:
    """A function of floats as one of doubles: its types, its calls of the math library and its constants."""
    text = re.sub(r"\bfloat\b", "double", _MATH.sub(lambda m: f"{m[1]}(", text))
    return re.sub(r"(\d\.\d+)f\b", r"\1", text)
