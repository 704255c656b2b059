"""The backend of torch.compile: graphs of Dynamo through AOTAutograd, each a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

from hipwright.api.dynamo.graphs import CompiledGraph
from hipwright.api.dynamo.options import BackendOptions


def compiled(
    module: GraphModule, example_inputs: Sequence[Any], mode: str | None, options: Mapping[str, Any] | None
) -> Callable[..., Any]:
    """A graph of Dynamo compiled, as `entry.backend` says."""
    chosen = BackendOptions.of(mode, options)
    chosen.targets  # noqa: B018  # raises for a target that is not here before anything runs
    compiler = aot_autograd(
        fw_compiler=partial(_compiled, "forward", chosen),
        bw_compiler=partial(_compiled, "backward", chosen),
        inference_compiler=partial(_compiled, "inference", chosen),
    )
    made: Callable[..., Any] = compiler(module, example_inputs)
    return made


def _compiled(
    part: str, options: BackendOptions, module: GraphModule, example_inputs: Sequence[Any]
) -> Callable[[list[Any]], Any]:
    graph = CompiledGraph(module, part, _static(part, module), options)

    def call(args: list[Any]) -> Any:
        return graph(args)

    call._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd hands over a list, to be emptied
    return call


def _static(part: str, module: GraphModule) -> list[int]:
    """The places of parameters and buffers among a graph's arguments."""
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    places: Sequence[int] = getattr(metadata, "static_input_indices", None) or ()
    if part != "backward":
        return list(places)
    names = {f"primals_{place + 1}" for place in places}
    given = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    return [place for place, name in enumerate(given) if name in names]
