"""`hipwright.optimize` for a live module or function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from hipwright.api.inputs import TaskSource
from hipwright.api.live.answers import answer
from hipwright.api.live.exported import LiveTask, live_task, title_of
from hipwright.api.live.result import ModuleResult, module_result
from hipwright.api.optimize import SearchRequest
from hipwright.errors import BadInput
from hipwright.events import Listener, silent
from hipwright.machine import Machine


def optimize_live(
    original: Any,
    example_inputs: object,
    example_kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    on: Machine | None = None,
    fresh: bool = False,
    listener: Listener = silent,
) -> ModuleResult:
    """Traces, searches, and makes the drop-in. options: fields of a `SearchRequest`."""
    args = arguments(example_inputs, example_kwargs)
    listener("stage", {"text": "tracing the module"})
    live = traced(original, args, example_kwargs)
    request = SearchRequest(task=_source(live), **options)
    resumed = request.resume is not None or request.replay is not None or request.start is not None
    result = answer(request, on=on, fresh=fresh or resumed, listener=listener)
    return module_result(original, live, result, args, example_kwargs)


def live_source(original: Any, example_inputs: object, example_kwargs: Mapping[str, Any]) -> TaskSource:
    """The task of a live module, to be opened."""
    return _source(traced(original, arguments(example_inputs, example_kwargs), example_kwargs))


def traced(original: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> LiveTask:
    """The task of a live module. Raises what `live_task` raises, and BadInput for a lazy module without sizes."""
    if isinstance(original, torch.nn.Module) and any(map(_is_lazy, original.modules())):
        raise BadInput("a lazy module has no sizes yet", hint="call it once with its inputs first")
    return live_task(original, args, kwargs, title_of(original))


def _source(live: LiveTask) -> TaskSource:
    return TaskSource(live.task.name, text=live.task.text)


def arguments(example_inputs: object, example_kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The positional arguments of a call. Raises BadInput where there are none at all."""
    if example_inputs is None and not example_kwargs:
        raise BadInput("no example inputs", hint="give the arguments of one call: optimize(module, (x, ...))")
    if example_inputs is None:
        return ()
    return tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)


def _is_lazy(module: torch.nn.Module) -> bool:
    tensors = (*module._parameters.values(), *module._buffers.values())
    return any(torch.nn.parameter.is_lazy(tensor) for tensor in tensors if tensor is not None)
