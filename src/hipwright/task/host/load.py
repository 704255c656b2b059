"""Executes a task file and finds what it defines. Runs in the task host; imports torch."""

from __future__ import annotations

import linecache
import random
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from hipwright.errors import TaskError
from hipwright.torchio import NAMES
from hipwright.widened import Widening

MODULE = "hipwright_task_file"
SUPPORTED = "tensors of " + ", ".join(sorted(NAMES.values())) + "; int, float, bool, str, None; tuples, lists, dicts"


class TaskModule:
    """The names a task file defines. Raises TaskError, naming the file and line, for whatever its code does wrong."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self._widening = Widening()
        self._names = self._execute(source)
        self.model_class = self._model_class()
        if "get_inputs" not in self._names and "get_input_groups" not in self._names:
            raise TaskError(f"{name}: no get_inputs()", hint="define get_inputs() that returns a list of inputs")

    def _execute(self, source: str) -> dict[str, Any]:
        module = types.ModuleType(MODULE)
        module.__file__ = self.name
        sys.modules[MODULE] = module
        # for tracebacks and inspect.getsource
        linecache.cache[self.name] = (len(source), None, source.splitlines(keepends=True), self.name)
        seed_everything(0)
        with uncompiled():
            self.guarded(lambda: exec(compile(source, self.name, "exec"), module.__dict__), "")
        return module.__dict__

    def _model_class(self) -> Any:
        found = self._names.get("Model")
        if found is None:
            raise TaskError(f"{self.name}: no class Model", hint="a task defines class Model(torch.nn.Module)")
        if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
            raise TaskError(f"{self.name}: Model is not a torch.nn.Module", hint="class Model(torch.nn.Module)")
        return found

    def guarded(self, fn: Callable[[], Any], doing: str) -> Any:
        """fn(); what it raises becomes a TaskError that names the line in the file.

        Operators of a forward that torch lacks for half types on this device run in float32 (widened.py).
        """
        try:
            return self._widening.run(fn) if "forward" in doing else fn()
        except TaskError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            raise self._explain(error, doing) from error

    def _explain(self, error: BaseException, doing: str) -> TaskError:
        line = next(
            (
                frame.lineno
                for frame in reversed(traceback.extract_tb(error.__traceback__))
                if frame.filename == self.name
            ),
            None,
        )
        if isinstance(error, SyntaxError) and error.filename == self.name:
            line = error.lineno
        what = type(error).__name__
        text = (str(error.msg) if isinstance(error, SyntaxError) else str(error)).strip()
        summary = f"{what}: {text.splitlines()[0][:300]}" if text else what
        where = f"{self.name}:{line}" if line else self.name
        tail = "".join(traceback.format_exception(error))[-4000:]
        return TaskError(
            f"{where}: {doing} raises {summary}" if doing else f"{where}: {summary}",
            hint=_hint(error),
            evidence={"file": self.name, "line": line or 0, "traceback": tail},
        )

    # ---------------------------------------------------------------- what it makes

    def model(self, seed: int) -> torch.nn.Module:
        """A freshly constructed Model, in the mode its constructor left it.

        Lazy modules are called once with the file's own inputs, in evaluation mode, which gives their parameters sizes.
        """
        args, kwargs = _init_arguments(self.init_inputs(seed))
        with torch.no_grad(), uncompiled():  # tensors derived from parameters then stay leaves, which can be copied
            model = self.guarded(lambda: self.model_class(*args, **kwargs), "Model(...)")
            assert isinstance(model, torch.nn.Module)
            if any(map(is_lazy, (*model.parameters(), *model.buffers()))):
                inputs = self.inputs(seed, None if self.given else 0)
                modes = {module: module.training for module in model.modules()}
                self.guarded(lambda: model.eval()(*inputs), "the first forward of a lazy module")
                for module in model.modules():
                    module.training = modes.get(module, module.training)
        return model

    def init_inputs(self, seed: int) -> Any:
        """get_init_inputs() under a seed; [] where the file has none."""
        seed_everything(seed)
        return self._call("get_init_inputs") if "get_init_inputs" in self._names else []

    @property
    def groups(self) -> int:
        """How many input groups the file declares."""
        return len(self._groups()) if "get_input_groups" in self._names else 0

    @property
    def given(self) -> bool:
        """Whether there is a get_inputs()."""
        return "get_inputs" in self._names

    def inputs(self, seed: int, group: int | None = None) -> list[Any]:
        """get_inputs(), or one of get_input_groups(), under a seed."""
        seed_everything(seed)
        if group is None:
            return self._inputs_of(self._call("get_inputs"), "get_inputs()")
        return self._inputs_of(self._groups()[group], f"get_input_groups()[{group}]")

    def _groups(self) -> Sequence[Any]:
        groups = self._call("get_input_groups")
        if not isinstance(groups, (list, tuple)):
            raise TaskError(f"{self.name}: get_input_groups() returns a {type(groups).__name__}, not a list of lists")
        return groups

    def _inputs_of(self, value: Any, what: str) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise TaskError(f"{self.name}: {what} returns a {type(value).__name__}, not a list", hint="return [x, ...]")
        return list(value)

    def _call(self, function: str) -> Any:
        return self.guarded(lambda: self._names[function](), f"{function}()")


@contextmanager
def uncompiled() -> Iterator[None]:
    """torch.compile leaves what it is given as it is: the reference is the code, and a compiler's files have no place.

    The compiler is a baseline, which is measured elsewhere.
    """

    def same(model: Any = None, **_: Any) -> Any:
        return (lambda function: function) if model is None else model

    before, before_method = torch.compile, torch.nn.Module.compile
    torch.compile, torch.nn.Module.compile = same, lambda module, *args, **options: None
    try:
        yield
    finally:
        torch.compile, torch.nn.Module.compile = before, before_method


def seed_everything(seed: int) -> None:
    """Python's, NumPy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _init_arguments(value: Any) -> tuple[list[Any], dict[str, Any]]:
    """[...] are positional; [[...], {...}] are positional and keyword arguments."""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(items) == 2 and isinstance(items[0], (list, tuple)) and isinstance(items[1], dict):
        return list(items[0]), items[1]
    return items, {}


def _hint(error: BaseException) -> str:
    text = str(error)
    if "CUDA" in text or "NVIDIA" in text:
        return "make the model and its inputs on the CPU; hipwright moves them"
    if isinstance(error, PermissionError):
        return "a task runs in a sandbox without network, new processes, or files besides /tmp"
    if "does not require grad" in text:
        return (
            "forward runs without autograd, and a program returns what it computes: under torch.enable_grad() take "
            "torch.autograd.grad(loss, list(self.parameters())) and return it; the optimizer's update is not a task's"
        )
    if isinstance(error, ModuleNotFoundError):
        return "a task is one file; besides torch and numpy it can import what is installed next to them"
    return ""
