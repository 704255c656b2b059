"""The backend's public names, which import torch when they are called and not before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from hipwright.api.dynamo.graphs import CompiledGraph

NAME = "hipwright"


def backend(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend of `torch.compile(model, backend="hipwright", mode=..., options={...})`; options: `BackendOptions`.

    AOTAutograd makes each graph functional and splits training into forward and backward. Each is a task with its
    first call: answered from the archive, or by a search. Graphs without a verified program run eager, and so do
    calls at sizes that a program declines. Raises BadInput for options that there are not.

    >>> import hipwright, torch
    >>> fast = torch.compile(lambda x: torch.relu(x) * 3, backend=hipwright.backend, options={"target": "cpu"})
    >>> fast(torch.tensor([-1.0, 2.0]))
    tensor([0., 6.])
    """
    from hipwright.api.dynamo.backend import compiled

    return compiled(module, example_inputs, mode, options)


def compiled_graphs() -> list[CompiledGraph]:
    """All graphs that torch.compile has given to the backend in this process, in order.

    >>> import hipwright, torch
    >>> fast = torch.compile(lambda x: torch.relu(x) * 3, backend=hipwright.backend, options={"target": "cpu"})
    >>> _ = fast(torch.ones(2))
    >>> hipwright.compiled_graphs()[-1].status
    'verified'
    """
    from hipwright.api.dynamo.graphs import all_graphs

    return all_graphs()


def register() -> None:
    """Registers the backend under its name, for an installation that has no entry point of it."""
    from torch._dynamo.backends.registry import _BACKENDS, list_backends, register_backend

    if NAME not in list_backends(exclude_tags=None) or _BACKENDS.get(NAME) is None:
        register_backend(backend, name=NAME)
