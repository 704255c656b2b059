"""Programs in the place of a model's parts. Runs in the model host; imports torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from hipwright.api.live.callable import callable_program
from hipwright.api.live.exported import LiveTask, live_task
from hipwright.api.live.forward.graphs import ForwardGraphs, graphs_in, put_graphs
from hipwright.api.live.graphed import GraphedProgram
from hipwright.api.live.module import OptimizedModule, ProgramCall
from hipwright.api.whole.calls import CapturedCall, captured_calls, first_calls
from hipwright.api.whole.exchange import Exchange, RemoteProgram
from hipwright.api.whole.load import LoadedModel
from hipwright.api.whole.plan import WHOLE, without_scales
from hipwright.errors import HipwrightError
from hipwright.records import Program

TITLE = "region"
"""The name of every region's task: equal regions have one text."""


class ReplacedModel:
    """A model whose parts can be put back and replaced. model: as it is now."""

    def __init__(self, loaded: LoadedModel, exchange: Exchange) -> None:
        self.model = loaded.model
        self._loaded, self._exchange = loaded, exchange
        self._parts: dict[str, tuple[int, torch.nn.Module, OptimizedModule]] = {}
        self._graphs: dict[frozenset[int], ForwardGraphs | None] = {}
        self._traced: dict[tuple[str, str], tuple[LiveTask | None, str]] = {}  # by path and the region's text

    def trace(self, regions: Collection[Mapping[str, Any]]) -> None:
        """Traces the parts of regions ({"numbers", "text"}), which `install` would do."""
        for one, calls in self._calls(regions):
            for call in calls:
                self._same_task(call, one["text"])

    def _calls(
        self, regions: Collection[Mapping[str, Any]]
    ) -> Iterator[tuple[Mapping[str, Any], Collection[CapturedCall]]]:
        """(a region, the first of its calls of each part), with the arguments of one more forward."""
        captured = captured_calls(self._loaded, {n for one in regions for n in one["numbers"]})
        for one in regions:
            known = {captured[n].path: captured[n] for n in reversed(one["numbers"]) if n in captured}
            yield one, known.values()

    def _same_task(self, call: CapturedCall, text: str) -> tuple[LiveTask | None, str]:
        if (call.path, text) not in self._traced:
            part = self._loaded.model.get_submodule(call.path)
            self._traced[call.path, text] = _same_task(part, call, text)
        return self._traced[call.path, text]

    def install(self, regions: Collection[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
        """Replaces the calls of regions: {"region", "numbers", "text", "program", "passed", "searched", "remote"}.

        Returns for each region, by its number, the parts that stay and why. A part has one program at most.
        """
        stay: dict[str, dict[str, str]] = {}
        for one, calls in self._calls(regions):
            refused = stay.setdefault(str(one["region"]), {})
            for call in calls:
                if why := self._replace(one, call):
                    refused[call.path] = why
        self.choose([one["region"] for one in regions])
        return stay

    def _replace(self, one: Mapping[str, Any], call: CapturedCall) -> str:
        """Makes the part's drop-in; why it stays, "" where it does not."""
        if call.path in self._parts:
            return "a program of another region stands for this part"
        part = self._loaded.model.get_submodule(call.path)
        live, why = self._same_task(call, one["text"])
        if live is None:
            return why
        try:
            program, why = self._program(one, live, call.path)
        except HipwrightError as error:
            return error.message
        if program is None:
            return why
        self._parts[call.path] = (one["region"], part, OptimizedModule(part, live, program))
        return ""

    def _program(self, one: Mapping[str, Any], live: LiveTask, path: str) -> tuple[ProgramCall | None, str]:
        if live.task.draws:
            return None, "it draws random numbers, which another process draws for itself"
        if one["remote"]:
            return RemoteProgram(self._exchange, one["region"], path), ""
        return callable_program(live.task, Program(text=one["program"]), one["passed"], one["searched"])

    def choose(self, regions: Collection[int]) -> None:
        """The model with the programs of these regions, and its own parts elsewhere.

        Its calls replay one graph of the GPU with the regions of any choice, none too, so that what is compared is the
        programs and not how they are called. Each choice keeps its own.
        """
        for path, (region, part, drop_in) in self._parts.items():
            self._put(path, drop_in if region in regions else part)
        chosen = frozenset(regions)
        if chosen not in self._graphs:
            device = next(filter(None, (drop_in.launches_on for _, _, drop_in in self._parts.values())), "")
            self._graphs[chosen] = put_graphs(self.model, device=device)
        elif (graphs := self._graphs[chosen]) is not None:
            self.model._compiled_call_impl = graphs

    def _put(self, path: str, part: torch.nn.Module) -> None:
        if path:
            self.model.set_submodule(path, part)
        else:
            self.model = part

    def counts(self) -> dict[str, dict[str, Any]]:
        """Of each region since the last count: {"calls" of its program, "fallbacks" by reason, "replays": calls that
        replayed a graph of the GPU, "launched": calls that launched their kernels one by one, by reason}.

        Where the model's calls may replay one graph of all of it, `plan.WHOLE` has theirs: "replays", "launched", and
        "parts", calls of parts that replayed one of theirs. Calls of programs within these are among "calls".
        """
        found: dict[str, dict[str, Any]] = {}
        for region, _, drop_in in self._parts.values():
            one = found.setdefault(str(region), {"calls": 0, "fallbacks": {}, "replays": 0, "launched": {}})
            own, program = drop_in.__dict__, drop_in.__dict__["_program"]
            one["calls"] += own["program_calls"]
            _add(one["fallbacks"], own["fallbacks"])
            own["program_calls"] = 0
            if isinstance(program, GraphedProgram):
                one["replays"] += program.replays
                _add(one["launched"], program.launched)
                program.replays = 0
        own = {path: graphs.taken() for path, graphs in graphs_in(self.model).items()}
        if "" in own:
            whole = own.pop("")
            found[WHOLE] = {**whole, "parts": sum(one["replays"] for one in own.values())}
        return found


def _add(total: dict[str, int], counts: Counter[str]) -> None:
    """Adds counts to a total, and begins them again."""
    for why, count in counts.items():
        total[why] = total.get(why, 0) + count
    counts.clear()


def _same_task(part: torch.nn.Module, call: CapturedCall, text: str) -> tuple[LiveTask | None, str]:
    """The part's task where it is that of the text, but for the scales of inputs; else why not."""
    try:
        live = live_task(part, call.args, call.kwargs, TITLE)
    except HipwrightError as error:
        return None, error.message
    if without_scales(live.task.text) != without_scales(text):
        return None, "its graph, sizes or strides are others than those of the program's task"
    return live, ""


def replaced_parts(loaded: LoadedModel, programs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Puts programs into a model of this process, in place: {"paths", "text", "program", "targets", "searched"}.

    Returns the parts that stay and why.
    """
    wanted = {path: one for one in programs for path in one["paths"]}
    numbers = first_calls(loaded, wanted)
    captured = {call.path: call for call in captured_calls(loaded, numbers.values()).values()}
    stay: dict[str, str] = {}
    for path, one in wanted.items():
        part = loaded.model.get_submodule(path) if path in captured else None
        if part is None or not path:
            stay[path] = "the model itself: hipwright.optimize gives its drop-in" if not path else "it is not called"
            continue
        live, why = _same_task(part, captured[path], one["text"])
        if live is not None:
            program, why = callable_program(live.task, Program(text=one["program"]), one["targets"], one["searched"])
            loaded.model.set_submodule(path, OptimizedModule(part, live, program, why))
        if why:
            stay[path] = why
    put_graphs(loaded.model)
    return stay
