"""Arguments of operators that take too many are a list of tensors and the others."""

from __future__ import annotations

import pytest
import torch

from hipwright.errors import BadInput
from hipwright.ship.operands import MOST, TENSOR, listed, passed, schema
from hipwright.ship.runtime import op

MIXED = [TENSOR, "SymInt", *[TENSOR] * 70, "float"]


def test_few_are_passed_one_by_one() -> None:
    few = [TENSOR, "bool"]
    assert listed(few) is None and listed([TENSOR] * MOST) is None
    assert schema([("Tensor", "x"), ("bool", "far")]) == "Tensor x, bool far"
    assert passed(["x", "far"], None) == "x, far"


def test_many_are_a_list_and_come_back_in_order() -> None:
    kinds = listed(MIXED)
    assert kinds is not None
    names = [f"a{number}" for number in range(len(MIXED))]
    assert schema(list(zip(MIXED, names, strict=True))) == "Tensor[] tensors, SymInt a1, float a72"
    called = eval(f"lambda {', '.join(names)}: ({passed(names, kinds)},)")(*names)
    assert called[1:] == ("a1", "a72") and op._flat(called, kinds) == names
    assert op._listed(names, kinds) == called
    library = torch.library.Library("hipwright_operands", "DEF")
    library.define(f"taken({schema(list(zip(MIXED, names, strict=True)))}) -> Tensor")


def test_numbers_beyond_what_an_operator_takes_are_refused() -> None:
    with pytest.raises(BadInput, match="64 numbers"):
        listed([TENSOR, *["SymInt"] * 64])
