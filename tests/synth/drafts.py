"""Runs composed drafts in the test process."""

from __future__ import annotations

from typing import Any

from hipwright.synth.records import Draft


def namespace(draft: Draft) -> dict[str, Any]:
    """The globals of the draft's file."""
    import torch

    torch.manual_seed(0)
    made: dict[str, Any] = {}
    exec(compile(draft.source, draft.name, "exec"), made)
    return made


def outputs(draft: Draft) -> tuple[Any, ...]:
    """The outputs of forward on the file's own inputs."""
    import torch

    made = namespace(draft)
    model = made["Model"](*made["get_init_inputs"]())
    with torch.no_grad():
        given = model(*made["get_inputs"]())
    return given if isinstance(given, tuple) else (given,)
