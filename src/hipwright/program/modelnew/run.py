"""Runs a ModelNew file unchanged in a sandboxed worker. Imports torch; the parent never imports this module.

The caller confines the process (`sandbox.lockdown`) before `load`: the candidate's code here is hostile host code. Its
native extensions were built before (`program.modelnew.build`): the module `torch.utils.cpp_extension` is replaced by a
stand-in that serves those builds and compiles nothing.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hipwright.errors import CandidateError, HipwrightError
from hipwright.program.lower.table import to_device
from hipwright.program.lower.trace import OpTrace
from hipwright.program.modelnew import extensions
from hipwright.program.modelnew.extensions import Extension, Unknown
from hipwright.tensors import Tree

FILENAME = "<ModelNew>"
MODULE = "model_new"


@dataclass
class LoadedModelNew:
    """An executed ModelNew file.

    params and buffers: the candidate's tensors under the *reference's* paths, on the device.
    """

    forward: Callable[..., Any]
    model: Any
    params: dict[str, Any]
    buffers: dict[str, Any]

    def __call__(self, *inputs: Any) -> Any:
        """Calls forward once without gradients. Raises CandidateError for whatever the candidate raises."""
        with guarded("launch"), torch.no_grad():
            return self.forward(*inputs)

    def trace(self, *inputs: Any) -> tuple[Any, list[dict[str, Any]]]:
        """(outputs, library operators of one call in OpTrace's form), without an extension's own kernels."""
        with guarded("launch"), torch.no_grad(), OpTrace() as ops:
            outputs = self.forward(*inputs)
        return outputs, list(ops.ops)


def load(init: Mapping[str, Any], table: Tree, device: str) -> LoadedModelNew:
    """Executes a ModelNew file and gives it the task's state.

    init: text; seed; extensions: built by `modelnew.build.prepare`. table: the state table, with
    "init_inputs": the arguments of ModelNew (plain ones may be in init). Raises CandidateError: what the file raises
    (launch_error), or parameters that do not match the task's (bad_output_spec).
    """
    serve = Prebuilt(init.get("extensions", ()))
    names = execute(str(init["text"]), serve)
    given = table.get("init_inputs", init.get("init_inputs", ()))
    with guarded("load"):
        torch.manual_seed(int(init.get("seed", 0)))
        arguments = to_device(list(given), "cpu")
        model = names["ModelNew"](**arguments[0]) if _by_name(arguments) else names["ModelNew"](*arguments)
        model.train(bool(table.get("training", True)))
        model = model.to(device)
    params, buffers = set_state(model, table, device)
    return LoadedModelNew(model, model, params, buffers)


def _by_name(arguments: Sequence[Any]) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], dict)


def execute(text: str, loader: Any) -> dict[str, Any]:
    """Executes the file with `loader` in place of torch.utils.cpp_extension; returns its names."""
    replace_cpp_extension(loader)
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module  # dataclasses and Triton look their module up
    linecache.cache[FILENAME] = (len(text), None, text.splitlines(keepends=True), FILENAME)  # Triton reads sources
    module.__file__ = FILENAME
    with guarded("load"):
        exec(compile(text, FILENAME, "exec"), module.__dict__)
    if not isinstance(module.__dict__.get("ModelNew"), type):
        raise CandidateError("the file leaves no class ModelNew", status="parse_error", stage="load")
    return module.__dict__


@contextlib.contextmanager
def guarded(stage: Any) -> Iterator[None]:
    """Turns exceptions of the candidate's code into CandidateErrors with its line."""
    try:
        yield
    except HipwrightError:
        raise
    except torch.cuda.OutOfMemoryError as error:
        raise CandidateError(f"out of device memory: {str(error)[:300]}", status="launch_error", stage=stage) from error
    except (Exception, SystemExit) as error:
        where = _line(error)
        raise CandidateError(
            f"{where}{type(error).__name__}: {str(error)[:1500]}",
            status="launch_error",
            stage=stage,
            evidence={"exception": type(error).__name__},
        ) from error


def _line(error: BaseException) -> str:
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILENAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}: " if line else ""


# ---------------------------------------------------------------- state


def set_state(model: Any, table: Tree, device: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Gives the model the task's values; returns (params, buffers) under the reference's paths.

    Tensors are matched by name and shape, the others by order if counts and shapes agree. Buffers that only the
    candidate has stay unchanged. Raises CandidateError(bad_output_spec) for parameters without a match.
    """
    own_params = dict(model.named_parameters())
    own_buffers = dict(model.named_buffers())
    params = _match(own_params, dict(table.get("params", {})), "parameter", strict=True)
    plain = {k: v for k, v in vars(model).items() if isinstance(v, torch.Tensor) and k in table.get("buffers", {})}
    buffers = _match(own_buffers | plain, dict(table.get("buffers", {})), "buffer", strict=False)
    with torch.no_grad():
        for path, live in (*params.items(), *buffers.items()):
            source = table["params"] if path in params else table["buffers"]
            live.data.copy_(to_device(source[path], device))
    return _all_of(table.get("params", {}), params, device), _all_of(table.get("buffers", {}), buffers, device)


def _all_of(given: Mapping[str, Any], found: dict[str, Any], device: str) -> dict[str, Any]:
    """Every path of the task in its order; a copy stands for tensors that the candidate does not have."""
    return {p: found[p] if p in found else to_device(t, device).clone() for p, t in given.items() if t is not None}


def _match(own: dict[str, Any], given: dict[str, Any], what: str, *, strict: bool) -> dict[str, Any]:
    """{the task's path: the candidate's tensor}: by name and shape, what is left by order."""
    given = {path: tensor for path, tensor in given.items() if tensor is not None}
    found = {n: t for n, t in own.items() if n in given and tuple(given[n].shape) == tuple(t.shape)}
    unmatched = [(n, t) for n, t in own.items() if n not in found]
    available = [(n, t) for n, t in given.items() if n not in found]
    if not unmatched or not strict:
        return found
    if [tuple(t.shape) for _, t in unmatched] == [tuple(t.shape) for _, t in available]:
        return found | {path: t for (path, _), (_, t) in zip(available, unmatched, strict=True)}
    raise CandidateError(
        f"the {what}s of ModelNew do not match the task's: it has {_listed(unmatched)}, the task has "
        f"{_listed(available)} left",
        status="bad_output_spec",
        stage="load",
        hint="make them under the reference's names, with its shapes",
    )


def _listed(items: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(f"{n} {tuple(t.shape)}" for n, t in items[:4]) or "nothing"


# ---------------------------------------------------------------- extensions


def replace_cpp_extension(loader: Any) -> None:
    """Replaces torch.utils.cpp_extension by a module that calls `loader` and compiles nothing."""
    module: Any = types.ModuleType("torch.utils.cpp_extension")
    module.load_inline = loader.load_inline
    module.load = loader.load
    module.CUDA_HOME = module.ROCM_HOME = None
    module.IS_HIP_EXTENSION = torch.version.hip is not None
    module.include_paths = module.library_paths = lambda *_, **__: []
    sys.modules["torch.utils.cpp_extension"] = module
    torch.utils.cpp_extension = module


class Prebuilt:
    """Serves prebuilt extensions by key."""

    def __init__(self, built: Sequence[Mapping[str, Any]]) -> None:
        self._built = {str(item["key"]): item for item in built}

    def load_inline(self, *args: Any, **kwargs: Any) -> Any:
        """The module of the call's sources and functions."""
        return self._serve(extensions.inline(args, kwargs))

    def load(self, *args: Any, **kwargs: Any) -> Any:
        """The module of source files, which are read again as in discovery."""
        given = dict(zip(("name", "sources", "extra_cflags", "extra_cuda_cflags"), args, strict=False)) | kwargs
        return self._serve(extensions.from_files(given, lambda path: Path(path).read_text()))

    def _serve(self, wanted: Extension) -> Any:
        item = self._built.get(extensions.key(wanted))
        if item is None:
            raise CandidateError(
                "this extension differs from what the file asked for when it was built",
                status="compile_error",
                stage="load",
                hint="make the sources constants of the file",
            )
        if item["how"] == "lean":
            from hipwright.program.modelnew.torchlite_bind import LeanModule

            return LeanModule(str(item["so"]))
        return _real(str(item["module"]), str(item["so"]))


def _real(name: str, path: str) -> Any:
    """Imports an extension module that was built with torch's own headers."""
    import importlib.machinery
    import importlib.util

    spec = importlib.util.spec_from_file_location(
        name, path, loader=importlib.machinery.ExtensionFileLoader(name, path)
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ExtensionRecorder:
    """Records the requested extensions; returns modules whose functions raise."""

    def __init__(self) -> None:
        self.extensions: list[Extension] = []

    def load_inline(self, *args: Any, **kwargs: Any) -> Any:
        """Records a call."""
        return self._note(extensions.inline(args, kwargs))

    def load(self, *args: Any, **kwargs: Any) -> Any:
        """Records a call, with the files' text."""
        given = dict(zip(("name", "sources", "extra_cflags", "extra_cuda_cflags"), args, strict=False)) | kwargs
        return self._note(extensions.from_files(given, lambda path: Path(path).read_text()))

    def _note(self, extension: Extension) -> Any:
        self.extensions.append(extension)
        return _Unbuilt()


class _Unbuilt:
    def __getattr__(self, name: str) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise CandidateError(f"{name} is called while the extension is still being built", stage="load")

        return refuse


class Discovery:
    """Service that executes a file to find the extensions it builds. init: text; bundle: {"init_inputs": ...}."""

    def __init__(self, init: dict[str, Any], bundle: Tree) -> None:
        self._text = str(init["text"])
        self._given = (bundle or {}).get("init_inputs", ())

    def discover(self, header: dict[str, Any], _: Tree) -> tuple[dict[str, Any], Tree]:
        """{"extensions": [...]} in the order of the calls."""
        from hipwright.sandbox import lockdown

        lockdown("task")  # threads and the private /tmp stay possible: sources may be written there
        recorder = ExtensionRecorder()
        try:
            names = execute(self._text, recorder)
            with guarded("load"):
                names["ModelNew"](*to_device(list(self._given), "cpu"))
        except Unknown as error:
            raise CandidateError(
                f"an extension cannot be built: {error}", status="compile_error", stage="build"
            ) from error
        except CandidateError:
            if not recorder.extensions:
                raise
        return {"extensions": [e.to_dict() for e in recorder.extensions]}, None
