"""Variants of a task's program: the engine's settings one at a time or by a grid, and the programs that they make."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hipwright.capture.graph import Graph
from hipwright.engine import author, write
from hipwright.program import parse
from hipwright.records import Program

Settings = dict[str, Any]


def settings_name(settings: Settings) -> str:
    """ "KEY=VALUE KEY=VALUE ...", or "default" for no settings."""
    return " ".join(f"{key}={value}" for key, value in settings.items()) or "default"


def varied_settings(graph: Graph, grid: Mapping[str, Sequence[Any]], base: Settings) -> dict[str, Settings]:
    """Settings by their names: the default, then every other option of the engine's space one at a time.

    grid: values by key; all its combinations are taken instead of the space's options. base: the choices that a run on
    the target starts from; here and below, settings are what is chosen beside it.
    """
    if grid:
        found = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    else:
        found = [
            {k: v} for k, choice in author(graph, base).space.items() for v in choice.options if v != choice.default
        ]
    return {settings_name(settings): settings for settings in [{}, *found]}


def variant_programs(graph: Graph, settings: Mapping[str, Settings], base: Settings) -> dict[str, Program]:
    """Programs by the names of their settings; of equal programs the first is kept.

    A value of a knob that the space does not offer is added to the knob's choices in the program's text.
    """
    found: dict[str, Program] = {}
    known: set[tuple[str, str]] = set()
    for name, chosen in settings.items():
        program = _program(graph, chosen, base)
        if (key := _identity(program)) not in known:
            known.add(key)
            found[name] = program
    return found


def idle_keys(graph: Graph, settings: Iterable[Settings], base: Settings) -> list[str]:
    """The keys that change no program of a task, whatever else is set: misspelled, or of another task."""
    acting: set[str] = set()
    keys = dict.fromkeys(key for chosen in settings for key in chosen)
    for chosen in settings:
        own = _identity(_program(graph, chosen, base))
        for key in chosen.keys() - acting:
            others = {name: value for name, value in chosen.items() if name != key}
            if _identity(_program(graph, others, base)) != own:
                acting.add(key)
    return [key for key in keys if key not in acting]


def _program(graph: Graph, settings: Settings, base: Settings) -> Program:
    return _with_knobs(write(graph, {**base, **settings}), settings)


def _identity(program: Program) -> tuple[str, str]:
    """What equal programs have in common: the text, and the values of its knobs."""
    return program.text, json.dumps(parse(program.text).defines(program.knobs), sort_keys=True)


def _with_knobs(program: Program, settings: Settings) -> Program:
    """The program with the settings' values of its knobs."""
    knobs, text = parse(program.text).knobs, program.text
    values = {key: int(value) for key, value in settings.items() if key in knobs}
    for name, value in values.items():
        if value not in knobs[name].choices:
            head = f"{name} = knob({knobs[name].default}, choices=["
            text = text.replace(head, f"{head}{value}, ")
    return Program(text=text, knobs={**program.knobs, **values})


def helpful_settings(settings: Mapping[str, Settings], speeds: Mapping[str, float]) -> list[Settings]:
    """The best value of each key that was faster than the default, the largest gain first.

    speeds: speed over the default's, by the settings' names.
    """
    best: dict[str, tuple[float, Any]] = {}
    for name, chosen in settings.items():
        if len(chosen) == 1 and speeds.get(name, 0.0) > 1.0:
            ((key, value),) = chosen.items()
            best[key] = max(best.get(key, (1.0, None)), (speeds[name], value), key=lambda one: one[0])
    return [{key: value} for key, (_, value) in sorted(best.items(), key=lambda item: -item[1][0])]
