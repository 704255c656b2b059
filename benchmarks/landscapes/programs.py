"""The programs of a task by their settings, as a search's engine source writes them.

A knob changes no text, so the engine writes once for each structure. A value that a structure's knob does not offer
leaves the knob at its own default, as the engine does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.timing.variants import Settings, settings_name
from hipwright.capture.graph import Graph
from hipwright.engine import author, write
from hipwright.program import Parsed, parse
from hipwright.records import Program

Identity = tuple[str, str]


class TaskPrograms:
    """Programs of a graph, each under the name that its settings had when it was first met.

    base: the choices that a run on the target starts from. space: the engine's by these. Settings hold only what
    differs from the defaults.
    """

    def __init__(self, graph: Graph, base: Mapping[str, Any]) -> None:
        self.space = author(graph, base).space
        self._graph, self._base_choices = graph, base
        self._written: dict[str, tuple[Program, Parsed] | str] = {}
        self._names: dict[Identity, str] = {}
        self.refused: dict[str, str] = {}
        self.name({})  # the default has its own name, whatever is equal to it

    def settings(self, values: Mapping[str, Any]) -> Settings:
        """The settings among the values: those that are not the engine's defaults, in the space's order."""
        return {key: values[key] for key, one in self.space.items() if key in values and values[key] != one.default}

    def program(self, settings: Settings) -> Program:
        """The program of some settings. Raises ValueError where the engine fails to write it."""
        base, parsed = self._base(settings)
        values = {key: int(settings.get(key, one.default)) for key, one in self.space.items() if one.kind == "knob"}
        offered = {key: value for key, value in values.items() if key in parsed.knobs}
        knobs = {key: value for key, value in offered.items() if value in parsed.knobs[key].choices}
        return Program(text=base.text, knobs={**base.knobs, **knobs})

    def name(self, settings: Settings) -> str:
        """The name of the program of some settings, which equal programs share."""
        try:
            program = self.program(settings)
        except ValueError as error:
            name = settings_name(settings)
            self.refused[name] = str(error)[:160]
            return name
        parsed = self._base(settings)[1]
        identity = (program.text, json.dumps(parsed.defines(program.knobs), sort_keys=True))
        return self._names.setdefault(identity, settings_name(settings))

    def _base(self, settings: Settings) -> tuple[Program, Parsed]:
        structure = {key: settings.get(key, one.default) for key, one in self.space.items() if one.kind == "structure"}
        key = settings_name(structure)
        if key not in self._written:
            try:
                program = write(self._graph, {**self._base_choices, **structure})
                self._written[key] = (program, parse(program.text))
            except Exception as error:  # the engine's own fault, whatever it is: this structure is refused
                self._written[key] = f"{type(error).__name__}: {error}"
        found = self._written[key]
        if isinstance(found, str):
            raise ValueError(found)
        return found
