"""The options of the backend, from torch.compile's `mode` and `options`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from hipwright.api import targets as known_targets
from hipwright.api.inputs import TaskSource
from hipwright.api.live.answers import names
from hipwright.api.optimize import SearchRequest
from hipwright.errors import BadInput

Answers = Literal["search", "archive"]
BUDGETS = {"default": 1, "reduce-overhead": 1, "max-autotune": 40, "max-autotune-no-cudagraphs": 40}
"""Evaluations for one graph, by mode."""


@dataclass(frozen=True)
class BackendOptions:
    """Options of `torch.compile(..., backend="hipwright", options={...})`.

    target: as in `hipwright.optimize`; the default is this machine's GPU, or cpu. budget: evaluations for each graph.
    background: graphs run eager until their program is found. answers: "archive": no search, only what is known.
    max_minutes: for each graph. device_graphs: whether inference replays graphs of the GPU; unless the mode says no
    cudagraphs, it does. seed, unsafe: as in `hipwright.optimize`.
    """

    target: str | tuple[str, ...] | None = None
    budget: int = 1
    background: bool = False
    answers: Answers = "search"
    max_minutes: float | None = None
    device_graphs: bool = True
    seed: int | None = None
    unsafe: bool = False

    @staticmethod
    def of(mode: str | None, options: Mapping[str, Any] | None) -> BackendOptions:
        """The options of a call of torch.compile. Raises BadInput for a mode or option that there is not."""
        if (mode or "default") not in BUDGETS:
            raise BadInput(f"the backend hipwright has no mode {mode!r}", hint=f"modes: {', '.join(BUDGETS)}")
        known = {field.name for field in fields(BackendOptions)}
        for name in options or {}:
            if name not in known:
                raise BadInput(
                    f"the backend hipwright has no option {name!r}", hint=f"options: {', '.join(sorted(known))}"
                )
        by_mode = {"budget": BUDGETS[mode or "default"], "device_graphs": not (mode or "").endswith("no-cudagraphs")}
        made = BackendOptions(**{**by_mode, **(options or {})})
        if made.answers not in get_args(Answers):
            raise BadInput(f"answers={made.answers!r}", hint=f"one of {', '.join(get_args(Answers))}")
        return made

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that judge each graph. Raises BadInput for one that is unknown or not here."""
        if self.target is not None:
            return known_targets.choose(names(self.target))
        return known_targets.default()[-1:]  # what runs here

    def request(self, task: TaskSource) -> SearchRequest:
        """The search for one graph's task."""
        return SearchRequest(
            task=task,
            targets=self.targets,
            budget=self.budget,
            max_minutes=self.max_minutes,
            seed=self.seed,
            unsafe=self.unsafe,
        )
