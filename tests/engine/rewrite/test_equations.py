"""Einsum equations written as products of two and multiplications."""

from __future__ import annotations

import pytest
import torch

from hipwright.engine.ir.einsum import plain_letters
from hipwright.engine.rewrite.forms.equations import equations
from tests.engine.harness import Op, captured, check

SIZES = dict(zip("bcdehlnpstw", (2, 3, 5, 4, 3, 6, 8, 5, 6, 7, 9), strict=True))


def operands(equation: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn([SIZES[x] for x in term]) for term in equation.partition("->")[0].split(",")]


def written(equation: str, dtype: torch.dtype = torch.float32) -> list[str]:
    """The operators that the equation is by default."""
    given = [one.to(dtype) for one in operands(equation)]
    graph, _ = equations(captured(Op(lambda *x: torch.einsum(equation, *x)), given), {})
    return [node.op.split(".")[1] for node in graph.nodes]


EQUATIONS = [
    "btw,ewh->beth",
    "beth,ehw,bte->btw",
    "bcln,bcsn,bhcls,bcshp->bclhp",
    "bcln,bhcl,bclhp->bchpn",
    "bcln,bchpn,bhcl->bclhp",
    "b,d->bd",
    "bd,b->bd",
    "bd,bd->b",
    "b,b->",
    "bdt,ds->bs",
    "bl,bd,be,bt->ldet",
    "btd,d->bt",
    "tbd,bdl->lbt",
    "bd,dt,ts,sl,lw->bw",
    "bchp,ht->bctp",
    "scd,sbt->cbdt",
    "btc,dtc->bdc",
]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_values(equation: str) -> None:
    check(Op(lambda *x: torch.einsum(equation, *x) + 1.0), operands(equation), choices={"equation:einsum": True})


def test_forms() -> None:
    """Nothing that is not summed is a product, and the smallest intermediate values come first."""
    assert written("b,d->bd").count("mul") == 1 and "mm" not in written("b,d->bd")
    experts = written("beth,ehw,bte->btw")
    assert (experts.count("mul"), experts.count("mm"), experts.count("bmm")) == (1, 1, 0)
    assert experts.index("mul") < experts.index("mm")
    states = written("bcln,bcsn,bhcls,bcshp->bclhp")
    assert (states.count("mul"), states.count("bmm")) == (1, 2)
    assert written("btw,ewh->beth") == ["einsum"], "the engine's own kernels read any order"
    assert {"einsum", "mm"} & {*written("btw,ewh->beth", torch.float16)} == {"mm"}
    assert written("btd,dw->btw", torch.float16) == ["einsum"], "one product of what lies in order stays"
    assert written("bsd,btd->bst") == ["einsum"]


def test_values_of_half_types_and_of_sizes_that_vary() -> None:
    equation = "beth,ehw,bte->btw"
    given = [one.to(torch.bfloat16) for one in operands(equation)]
    check(Op(lambda *x: torch.einsum(equation, *x)), given)


@pytest.mark.parametrize(
    ("text", "ranks", "found"),
    [
        ("ij,jk", (2, 2), (["ij", "jk"], "ik")),
        ("...ij,...jk->...ik", (4, 4), (["abij", "abjk"], "abik")),
        ("i...,i->...", (3, 1), (["iab", "i"], "ab")),
        ("ii,i->i", (2, 1), None),
        ("...i,...j->ij", (2, 3), None),
    ],
)
def test_letters(text: str, ranks: tuple[int, ...], found: tuple[list[str], str] | None) -> None:
    assert plain_letters(text, ranks) == found
