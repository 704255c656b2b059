"""Equations of `torch.einsum`."""

from __future__ import annotations


def letters_of(equation: str, operands: int) -> tuple[list[str], str] | None:
    """(letters of both operands, of the result) of an einsum of two, without diagonals; None for another."""
    equation = equation.replace(" ", "")
    left, arrow, out = equation.partition("->")
    letters = left.split(",")
    if not arrow or "." in equation or len(letters) != 2 or operands != 2:
        return None
    return None if any(len(set(term)) != len(term) for term in (*letters, out)) else (letters, out)
