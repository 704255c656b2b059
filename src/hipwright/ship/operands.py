"""The arguments of an operator: one by one, or where there are too many the tensors as a list before the others."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.errors import BadInput

MOST = 64
"""Arguments of an operator of PyTorch's dispatcher, at the most."""
TENSOR = "Tensor"


def listed(types: Sequence[str]) -> tuple[bool, ...] | None:
    """Of each argument whether it is one of the list, or None where there is no list. types: as a schema has them.

    Raises BadInput for more numbers than an operator takes.
    """
    if len(types) <= MOST:
        return None
    if len(types) - types.count(TENSOR) >= MOST:
        raise BadInput(f"forward takes {len(types) - types.count(TENSOR)} numbers, and an operator {MOST - 1}")
    return tuple(kind == TENSOR for kind in types)


def schema(arguments: Sequence[tuple[str, str]]) -> str:
    """The arguments of a schema, as text. arguments: (type, name) of each."""
    found = listed([kind for kind, _ in arguments])
    others = [f"{kind} {name}" for kind, name in arguments if found is None or kind != TENSOR]
    return ", ".join(others if found is None else [f"{TENSOR}[] tensors", *others])


def passed(texts: Sequence[str], found: Sequence[bool] | None) -> str:
    """What an operator is called with, as text. texts: of each argument; found: as of `listed`."""
    if found is None:
        return ", ".join(texts)
    pairs = list(zip(texts, found, strict=True))
    tensors = ", ".join(text for text, one in pairs if one)
    return ", ".join([f"[{tensors}]", *(text for text, one in pairs if not one)])
