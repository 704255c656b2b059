"""The model host: the one process that runs the user's own model code (docs/models.md). It runs no candidate's code."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from hipwright.api.live.exported import live_task
from hipwright.api.live.graphed import WARM_CALLS
from hipwright.api.whole import calls, forwards
from hipwright.api.whole.exchange import Done, Exchange, Wanted
from hipwright.api.whole.load import guarded, load
from hipwright.api.whole.replaced import TITLE, ReplacedModel
from hipwright.errors import BadInput, TaskError
from hipwright.sandbox import lockdown
from hipwright.targets import CPU, TARGETS
from hipwright.tensors import Tree
from hipwright.torchio import full_precision, tree_from_torch, tree_to_torch

Told = tuple[dict[str, Any], Tree]


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
        self._exchange = Exchange()
        self._replaced = ReplacedModel(self.loaded, self._exchange)
        self._sides: dict[str, Callable[[], Any]] = {}

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
        """{"tasks": {number: {"text"} or {"why"}}} of the calls of header["numbers"], traced at their own arguments.

        Parts that look alike (`calls.likeness`) are traced once; before a program stands for one, it is traced itself.
        """
        found: dict[str, Any] = {}
        alike: dict[str, Any] = {}
        for number, call in calls.captured_calls(self.loaded, set(header["numbers"])).items():
            key = calls.likeness(self.loaded.model.get_submodule(call.path), call)
            if key not in alike:
                alike[key] = self._task(call)
            found[str(number)] = alike[key]
        return {"tasks": found}, None

    def _task(self, call: calls.CapturedCall) -> dict[str, str]:
        """{"text"} or {"why"} of a call."""
        part = self.loaded.model.get_submodule(call.path)
        try:
            return {"text": live_task(part, call.args, call.kwargs, TITLE).task.text}
        except (BadInput, TaskError) as error:
            return {"why": error.message}

    # ---------------------------------------------------------------- the model with programs in it

    def reference(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"eager", "exact": leaves of the result, None without float64}, {"why"} there is none.

        header: {"seed"} of the inputs (`forwards.inputs`).
        """
        seed = header["seed"]
        args, kwargs = forwards.inputs(self.loaded, seed)
        eager = guarded(lambda: forwards.forward(self.loaded.model, args, kwargs, seed), self.path, "forward")
        told: dict[str, Any] = {"eager": forwards.leaves(eager), "exact": None}
        try:
            told["exact"] = forwards.leaves(forwards.exact(self.loaded, args, kwargs, seed))
        except Exception as error:  # a model that names its dtypes may run in no other one
            return {"why": f"{type(error).__name__}: {str(error)[:200]}"}, told
        return {"why": ""}, told

    def trace(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Traces the parts of header["regions"] before they are installed, as `ReplacedModel.trace` takes them."""
        self._replaced.trace(header["regions"])
        return {}, None

    def install(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"stay": {region: {part: why}}}. header: {"regions"}, as `ReplacedModel.install` takes them."""
        return {"stay": self._replaced.install(header["regions"])}, None

    def choose(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Programs for header["regions"] alone."""
        self._replaced.choose(header["regions"])
        return {}, None

    def forward(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Runs the model on the inputs of header["seed"]: `_stopped`, with the leaves of the result in the end.

        On a GPU as often as it takes until a call replays graphs, if it ever does: that is the one that is judged.
        """
        args, kwargs = forwards.inputs(self.loaded, header["seed"])
        model, seed = self._replaced.model, header["seed"]
        before = 0 if self.device == CPU.name else WARM_CALLS

        def judged() -> Tree:
            for _ in range(before):
                forwards.forward(model, args, kwargs, seed)
            self._replaced.counts()
            return forwards.leaves(forwards.forward(model, args, kwargs, seed))

        return self._stopped(self._exchange.start(judged))

    def metric(self, header: dict[str, Any], bundle: Tree) -> Told:
        """As `forward`, for the script's own metric of the model: its number in the end."""
        metric, model = self.loaded.metric, self._replaced.model
        assert metric is not None

        def judged() -> float:
            with torch.no_grad():
                return float(guarded(lambda: metric(model), self.path, "metric(model)"))

        return self._stopped(self._exchange.start(judged))

    def answer(self, header: dict[str, Any], bundle: Tree) -> Told:
        """What a program gave: {"outputs", "buffers"}, or header {"declined"} or {"failed"}, why."""
        given = tree_to_torch(bundle) if isinstance(bundle, dict) else {}
        return self._stopped(self._exchange.resume({**header, **given}))

    def _stopped(self, at: Wanted | Done) -> Told:
        """{"region", "part"} of the program that the parent is to run, with its inputs and state; or in the end
        {"counts": `ReplacedModel.counts`} and the value."""
        if isinstance(at, Wanted):
            state = None if at.state is None else tree_from_torch(dict(at.state))
            return {"region": at.region, "part": at.part}, {"inputs": tree_from_torch(list(at.inputs)), "state": state}
        if at.error is not None:
            error = at.error
            guarded(lambda: _raise(error), self.path, "the model with programs")
        return {"counts": self._replaced.counts()}, at.value

    def block(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"ms", "counts"} of a call of header["calls"] forwards of a side (`_side`): milliseconds, and of the model
        with programs what its calls were (`ReplacedModel.counts`); {"missing": why} where it does not run."""
        try:
            side = self._side(header["side"])
            self._replaced.counts()
            ms = forwards.block(side, header["calls"], device=self.device != CPU.name, ready=self._replaced.counts)
            return {"ms": ms, "counts": self._replaced.counts()}, None
        except Exception as error:
            if header["side"] == "model":
                raise
            self._sides.pop(header["side"], None)
            return {"missing": f"{type(error).__name__}: {str(error)[:200]}"}, None

    def _side(self, name: str) -> Callable[[], Any]:
        """The call of "model" as it is now; of "compile", torch.compile's default of the plain one; or of "graph", the
        model as it was at the first call, captured."""
        model, args, kwargs = self._replaced.model, self.loaded.args, self.loaded.kwargs
        if name == "model":
            return lambda: model(*args, **kwargs)
        if name not in self._sides:
            if name == "compile":
                compiled = torch.compile(self.loaded.model)
                self._sides[name] = lambda: compiled(*args, **kwargs)
            else:
                self._sides[name] = forwards.captured(lambda: model(*args, **kwargs))
        return self._sides[name]


def _raise(error: BaseException) -> None:
    raise error
