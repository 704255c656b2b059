"""Calls in which the library's operators use deterministic algorithms. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from hipwright.verify.atomics import DETERMINISTIC


@contextmanager
def library_algorithms(header: Mapping[str, Any]) -> Iterator[None]:
    """Deterministic algorithms of the library while the block runs, where a call's header asks for them.

    Operators that have none run as they are. Fresh memory stays as the launcher leaves it: torch would fill it.
    """
    if not header.get(DETERMINISTIC):
        yield
        return
    strict, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        with torch.backends.cudnn.flags(
            enabled=torch.backends.cudnn.enabled,
            benchmark=False,
            deterministic=True,
            allow_tf32=torch.backends.cudnn.allow_tf32,
        ):
            yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = fills
        torch.use_deterministic_algorithms(strict, warn_only=warns)
