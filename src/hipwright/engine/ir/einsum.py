"""Equations of `torch.einsum`."""

from __future__ import annotations

import string
from collections.abc import Sequence


def letters_of(equation: str, operands: int) -> tuple[list[str], str] | None:
    """(letters of both operands, of the result) of an einsum of two, without diagonals; None for another."""
    if "->" not in equation or "." in equation or operands != 2:
        return None
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    return plain_letters(equation, [len(term) for term in terms]) if len(terms) == 2 else None


def plain_letters(text: str, ranks: Sequence[int]) -> tuple[list[str], str] | None:
    """(the letters of each operand, of the result) with the ellipsis as letters; None with diagonals, or where operands
    have different numbers of dimensions for the ellipsis."""
    left, arrow, out = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        return None
    if not arrow:
        single = sorted(x for x in set(left) - set(",.") if left.count(x) == 1)
        out = "".join(["..."] * ("." in left) + single)
    spare = [x for x in string.ascii_letters if x not in text]
    hidden = {rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True) if "..." in term}
    if len(hidden) > 1:
        return None
    more = "".join(spare[: max(hidden, default=0)])
    terms, out = [term.replace("...", more) for term in terms], out.replace("...", more)
    lengths = all(len(term) == rank for term, rank in zip(terms, ranks, strict=True))
    unique = all(len(set(term)) == len(term) for term in (*terms, out))
    return (terms, out) if lengths and unique and set(out) <= set("".join(terms)) else None
