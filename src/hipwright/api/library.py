"""hipwright as a library: `optimize`, `load` and the decorator `kernel` (docs/library.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from hipwright.api import targets as known_targets
from hipwright.api.files import prepare_folder
from hipwright.api.inputs import is_live, no_inputs, task_source
from hipwright.api.models import ModelOptions
from hipwright.api.optimize import SearchRequest, policy_name, run_search
from hipwright.api.result import Result
from hipwright.errors import BadInput
from hipwright.events import Listener, silent

if TYPE_CHECKING:
    from hipwright.api.live.decorator import OptimizedFunction
    from hipwright.api.live.module import OptimizedModule
    from hipwright.api.live.result import ModuleResult


class OptimizeOptions(TypedDict, total=False):
    """Further options of `optimize`: those of the command (docs/cli.md), and the listener of its events."""

    policy: str | None
    seed: int | None
    llm: str | Sequence[str] | None
    llm_share: float | None
    max_usd: float | None
    max_tokens: int | None
    prices: Sequence[str]
    without: Sequence[str]
    max_minutes: float | None
    workers: int
    resume: str | None
    replay: str | None
    start: str | Path | None
    unsafe: bool


@overload
def optimize(
    module: str | Path,
    example_inputs: None = None,
    *,
    target: str | Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    budget: int | None = None,
    out: str | Path | None = None,
    listener: Listener = silent,
    **options: Unpack[OptimizeOptions],
) -> Result: ...
@overload
def optimize(
    module: Callable[..., Any],
    example_inputs: object = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    target: str | Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    budget: int | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    listener: Listener = silent,
    **options: Unpack[OptimizeOptions],
) -> ModuleResult: ...
def optimize(
    module: object,
    example_inputs: object = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    target: str | Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    budget: int | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    listener: Listener = silent,
    **options: Unpack[OptimizeOptions],
) -> Result | ModuleResult:
    """Searches for a fast, verified HIP program in place of a module, a function, or the module of a task file.

    module: a torch module or a function of tensors, with the arguments of one call, example_inputs (a tuple, or one
    tensor) and example_kwargs: a `ModuleResult`, whose `module` is a drop-in. Its answer comes from the archive where
    that has one (fresh: never). Or the path or text of a task file (docs/tasks.md): a `Result`. target: one name or
    several; gfx942, gfx950 and cpu, or the GPU of this machine, without it; "cpu" alone: the drop-in runs the program
    on this processor. budget: evaluations at most (40). out: a folder for the result's files.

    Raises BadInput, TaskError and InfrastructureError, with a hint; TypeError for what is no module. A search in which
    nothing passed is no error: the drop-in is the original then.

    >>> import hipwright
    >>> result = hipwright.optimize("examples/rmsnorm_swiglu.py", budget=2, targets=["gfx942", "cpu"])
    >>> result.passed, result.evaluations, round(result.evaluation.coverage, 2)
    (True, 2, 1.0)
    >>> "__global__" in result.source
    True

    >>> import torch
    >>> layer = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU()).eval()
    >>> x = torch.randn(5, 32)
    >>> result = hipwright.optimize(layer, (x,), target="cpu", budget=1)
    >>> with torch.no_grad():
    ...     close = torch.allclose(result.module(x), layer(x), atol=1e-5)
    >>> result.passed, close, result.module.program_calls > 0
    (True, True, True)
    """
    how = {**_options(options), "targets": _targets(target, targets, options.get("resume") or options.get("replay"))}
    folder = Path(out) if out is not None else None
    if folder is not None:
        prepare_folder(folder)
    if is_live(module):
        return _of_live(
            module, example_inputs, example_kwargs or {}, {**how, "budget": budget}, fresh, folder, listener
        )
    no_inputs(example_inputs if example_kwargs is None else example_kwargs)
    result = run_search(SearchRequest(task=task_source(module), budget=budget, **how), listener=listener)
    if folder is not None:
        result.write(folder, listener=listener)
    return result


def _of_live(
    module: object,
    inputs: object,
    kwargs: Mapping[str, Any],
    how: Mapping[str, Any],
    fresh: bool,
    folder: Path | None,
    listener: Listener,
) -> ModuleResult:
    from hipwright.api.live.optimize import optimize_live

    made = optimize_live(module, inputs, kwargs, how, fresh=fresh, listener=listener)
    if folder is not None:
        made.save(folder)
    return made


def _options(given: OptimizeOptions) -> dict[str, Any]:
    """The fields of a SearchRequest. Raises TypeError for an option that there is not."""
    for name in given:
        if name not in OptimizeOptions.__annotations__:
            raise TypeError(f"optimize() has no option {name!r}")
    models = ("llm", "llm_share", "max_usd", "max_tokens", "prices", "without")
    found = {name: value for name, value in given.items() if name not in models}
    chosen = ModelOptions.of(
        given.get("llm"),
        given.get("llm_share"),
        given.get("max_usd"),
        given.get("max_tokens"),
        given.get("prices"),
        given.get("without"),
    )
    start = given.get("start")
    path = {"start": None if start is None else Path(start)}
    return {**found, **path, "policy": policy_name(given.get("policy")), "models": chosen}


def load(folder: str | Path, module: object = None) -> OptimizedModule:
    """The drop-in of a folder that `ModuleResult.save` wrote.

    module: the module or function that it was made of, whose parameters then are its own; BadInput where its graph is
    another. Without one the graph itself, with the saved weights, stands for the original.

    >>> import hipwright, tempfile, torch
    >>> layer = torch.nn.Linear(8, 3).eval()
    >>> x = torch.randn(4, 8)
    >>> folder = hipwright.optimize(layer, x, target="cpu", budget=1).save(tempfile.mkdtemp())
    >>> loaded = hipwright.load(folder)
    >>> with torch.no_grad():
    ...     torch.allclose(loaded(x), layer(x), atol=1e-5)
    True
    """
    from hipwright.api.live.saved import load_module

    return load_module(Path(folder), module)


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    target: str | Sequence[str] | None = None,
    budget: int = 8,
    **options: Any,
) -> Any:
    """A decorator: the function's first call with arguments of a kind optimises it for them.

    A kind is the arguments' structure, dtypes, ranks and devices, and what is no tensor among them. Options are those
    of `optimize`. Calls that want gradients, and sizes that the program does not serve, are the function's own.

    >>> import hipwright, torch
    >>> @hipwright.kernel(target="cpu", budget=1)
    ... def gated(x, gate):
    ...     return x * torch.sigmoid(gate)
    >>> x = torch.randn(6, 10)
    >>> torch.allclose(gated(x, x), x * torch.sigmoid(x), atol=1e-6)
    True
    """
    from hipwright.api.live.decorator import OptimizedFunction

    def decorated(fn: Callable[..., Any]) -> OptimizedFunction:
        return OptimizedFunction(fn, partial(optimize, target=target, budget=budget, **options))

    return decorated if function is None else decorated(function)


def _targets(
    one: str | Sequence[str] | None, several: Sequence[str] | None, earlier: str | None
) -> tuple[str, ...] | None:
    """The chosen targets; None for those of the earlier run. BadInput where both options are given."""
    if one is not None and several is not None:
        raise BadInput("target and targets are one option", hint="leave one of them out")
    names = (one,) if isinstance(one, str) else one if one is not None else several
    return known_targets.choose(names) if names or not earlier else None
