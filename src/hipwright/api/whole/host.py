"""The model host: the one process that runs the user's own model code (docs/models.md). It runs no candidate's code."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.utils import _pytree as pytree

from hipwright.api.live.exported import live_task
from hipwright.api.whole import calls
from hipwright.api.whole.load import guarded, load
from hipwright.errors import BadInput, TaskError
from hipwright.sandbox import lockdown
from hipwright.targets import CPU, TARGETS
from hipwright.tensors import Tree
from hipwright.torchio import full_precision

Told = tuple[dict[str, Any], Tree]
TITLE = "region"
"""The name of every region's task: equal regions have one text."""


class ModelHost:
    """Service of the sandbox. init: {"source": `ModelSource.plain()`, "device": "cpu" or "cuda:0"}.

    Methods take and return (header, bundle) as the sandbox has it.
    """

    def __init__(self, init: dict[str, Any], bundle: Tree) -> None:
        self.device = init["device"]
        if self.device != CPU.name:
            torch.zeros(1, device=self.device)  # starts the driver before the model's code runs
        lockdown("task" if self.device == CPU.name else "tools")
        warnings.simplefilter("ignore")
        full_precision()
        self.path = init["source"]["path"]
        self.loaded = load(init["source"], self.device)

    def describe(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"class", "parameters", "inputs": [text], "device": its name, "metric": whether there is one}."""
        model, given = self.loaded.model, pytree.tree_leaves((self.loaded.args, self.loaded.kwargs))
        tensors = [f"{t.dtype} {list(t.shape)}".removeprefix("torch.") for t in given if isinstance(t, torch.Tensor)]
        gpu = self.device != CPU.name
        return {
            "class": type(model).__name__,
            "parameters": sum(p.numel() for p in model.parameters()),
            "inputs": tensors,
            "device": torch.cuda.get_device_name(self.device) if gpu else "the processor",
            "metric": self.loaded.metric is not None,
        }, None

    def profile(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"calls": [fields of `plan.Call`]} of one forward.

        header: {"times": "estimate", "processor" or "device", "architecture": of the estimate and of the least time,
        "" where it is not known}.
        """
        seen = guarded(lambda: calls.seen_calls(self.loaded), self.path, "the model's forward")
        known = TARGETS.architecture(header["architecture"]) if header["architecture"] else None
        if header["times"] == "estimate":
            assert known is not None
            seconds = calls.estimated(seen, known)
        else:
            seconds = calls.profiled(self.loaded, len(seen.calls), device=header["times"] == "device")
        floors = calls.least(seen, known) if known is not None else [0.0] * len(seconds)
        facts = zip(seen.calls, seconds, floors, calls.operator_counts(seen), strict=True)
        return {
            "calls": [
                {
                    "number": number,
                    "path": call.path,
                    "kind": call.kind,
                    "parent": call.parent,
                    "seconds": spent,
                    "least": min(spent, floor),
                    "operators": operators,
                    "signature": call.signature,
                }
                for number, (call, spent, floor, operators) in enumerate(facts)
            ]
        }, None

    def tasks(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"tasks": {number: {"text"} or {"why"}}} of the calls of header["numbers"], traced at their own arguments."""
        found: dict[str, Any] = {}
        for number, call in calls.captured_calls(self.loaded, set(header["numbers"])).items():
            part = self.loaded.model.get_submodule(call.path)
            try:
                found[str(number)] = {"text": live_task(part, call.args, call.kwargs, TITLE).task.text}
            except (BadInput, TaskError) as error:
                found[str(number)] = {"why": error.message}
        return {"tasks": found}, None
