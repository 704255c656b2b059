"""Input families: kinds of values and layouts for verification beside the inputs that `get_inputs` draws."""

from hipwright.verify.inputs.domain import LARGE_SCALES, Domain, InputLeaf, observe
from hipwright.verify.inputs.families import FAMILIES, MASK_FAMILIES, applicable, make
from hipwright.verify.inputs.layouts import LAYOUTS, restride, with_values
from hipwright.verify.inputs.special import SPECIAL, Special
from hipwright.verify.inputs.state import (
    absolute,
    absolute_state,
    nudge,
    nudge_state,
    randomise_state,
    same_shapes,
    whole_state,
)
from hipwright.verify.inputs.values import FLOAT_FAMILIES, MIXED_AXES, generator

__all__ = [
    "FAMILIES",
    "FLOAT_FAMILIES",
    "LARGE_SCALES",
    "LAYOUTS",
    "MASK_FAMILIES",
    "MIXED_AXES",
    "SPECIAL",
    "Domain",
    "InputLeaf",
    "Special",
    "absolute",
    "absolute_state",
    "applicable",
    "generator",
    "make",
    "nudge",
    "nudge_state",
    "observe",
    "randomise_state",
    "restride",
    "same_shapes",
    "whole_state",
    "with_values",
]
