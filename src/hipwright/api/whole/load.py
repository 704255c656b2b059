"""A model and the arguments of one call of it, from the user's own code. Runs in the model host; imports torch."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from hipwright.errors import TaskError
from hipwright.task.host.load import seed_everything, uncompiled

SCRIPT = "hipwright_model_script"
_PAIR = "a factory returns (model, inputs): inputs a tuple of arguments, a dict of keywords, or one tensor"


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode with the arguments of one call.

    metric: the script's own `metric(model)`, a number by which the model is judged, or None.
    """

    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    metric: Callable[[torch.nn.Module], Any] | None = None


def load(source: Mapping[str, Any], device: str) -> LoadedModel:
    """The model of a `ModelSource.plain()`, under seed 0, on the device. Raises TaskError, naming the line."""
    sys.path[:0] = [folder for folder in source["folders"] if folder not in sys.path]
    seed_everything(0)
    kind, path = source["kind"], source["path"]
    metric: Any = None
    with uncompiled(), torch.no_grad():
        if kind == "config":
            from hipwright.api.whole.transformer import from_config

            model, inputs = guarded(lambda: from_config(Path(path), source["sizes"]), path, "the configuration")
        else:
            module = guarded(lambda: _imported(kind, path), path, "")
            model, inputs = _made(module, source["attribute"], path)
            metric = getattr(module, "metric", None) if kind == "script" else None
        model = model.eval().to(device)
        args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().to(device), _arguments(inputs))
    return LoadedModel(model, tuple(args), dict(kwargs), metric if callable(metric) else None)


def guarded(fn: Callable[[], Any], path: str, doing: str) -> Any:
    """fn(); what it raises becomes a TaskError that names the line of the user's file where there is one."""
    try:
        return fn()
    except TaskError:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)
        name = Path(path).name if path.endswith((".py", ".json")) else path
        said = (str(error).strip().splitlines() or [""])[0][:300]
        what = f"{type(error).__name__}: {said}" if said else type(error).__name__
        told = f"{name}:{line}" if line else name
        tail = "".join(traceback.format_exception(error))[-4000:]
        message = f"{told}: {doing} raises {what}" if doing else f"{told}: {what}"
        raise TaskError(message, hint=_hint(error), evidence={"traceback": tail}) from error


def _imported(kind: str, path: str) -> ModuleType:
    if kind == "factory":
        return importlib.import_module(path)
    spec = importlib.util.spec_from_file_location(SCRIPT, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[SCRIPT] = module
    spec.loader.exec_module(module)
    return module


def _made(module: Any, attribute: str, path: str) -> tuple[torch.nn.Module, Any]:
    """(model, inputs) of the module's factory, or of its Model and get_inputs."""
    name = Path(path).name
    if attribute:
        try:
            factory = functools.reduce(getattr, attribute.split("."), module)
        except AttributeError as error:
            raise TaskError(f"{name}: there is no {attribute}", hint=_PAIR) from error
        made = guarded(lambda: factory(), path, f"{attribute}()")
        if not isinstance(made, (tuple, list)) or len(made) != 2 or not isinstance(made[0], torch.nn.Module):
            raise TaskError(f"{name}: {attribute}() returns no model with inputs", hint=_PAIR)
        return made[0], made[1]
    if not hasattr(module, "Model") or not hasattr(module, "get_inputs"):
        raise TaskError(
            f"{name}: no Model and get_inputs", hint=f"define them, or name a factory, {name}:FACTORY; {_PAIR}"
        )
    init: Any = guarded(module.get_init_inputs, path, "get_init_inputs()") if hasattr(module, "get_init_inputs") else []

    model = guarded(lambda: module.Model(*init), path, "Model(...)")
    if not isinstance(model, torch.nn.Module):
        raise TaskError(f"{name}: Model is no torch.nn.Module")
    return model, guarded(module.get_inputs, path, "get_inputs()")


def _arguments(inputs: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), inputs
    return (inputs if isinstance(inputs, (tuple, list)) else (inputs,)), {}


def _hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return "what is imported must be installed, beside the script, or in a folder of PYTHONPATH (MODULE:FACTORY)"
    if isinstance(error, (PermissionError, FileNotFoundError)):
        return "a model runs in a sandbox without network or files: --read PATH shows it a file or folder"
    return ""
