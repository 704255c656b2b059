"""Runs a ModelNew file as it is, inside a sandboxed worker. Imports torch; the parent never imports this.

The caller has already confined the process (`sandbox.lockdown`) before `load`: everything here that belongs to the
candidate is hostile host code. Its native extensions were built before, elsewhere (`program.modelnew.build`): the
module `torch.utils.cpp_extension` is replaced by a stand-in that serves those builds and compiles nothing.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    """A live ModelNew. params and buffers: the candidate's tensors under the *reference's* paths, on the device.

    build_info: how each extension was built ("lean" or "real"), seconds, and how the state was matched.
    """

    forward: Callable[..., Any]
    model: Any
    params: dict[str, Any]
    buffers: dict[str, Any]
    build_info: dict[str, Any] = field(default_factory=dict)

    def __call__(self, *inputs: Any) -> Any:
        """One forward call without gradients. Raises CandidateError for whatever the candidate raises."""
        with guarded("launch"), torch.no_grad():
            return self.forward(*inputs)

    def trace(self, *inputs: Any) -> tuple[Any, list[dict[str, Any]]]:
        """(outputs, the library operators of one call in OpTrace's form); an extension's own kernels are not among
        them."""
        with guarded("launch"), torch.no_grad(), OpTrace() as ops:
            outputs = self.forward(*inputs)
        return outputs, list(ops.ops)


def load(init: Mapping[str, Any], table: Tree, device: str) -> LoadedModelNew:
    """Execute a ModelNew file and give it the task's state.

    init: text; seed; extensions: what `program.modelnew.build.prepare` made. table: the state table, with
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
    params, buffers, matched = set_state(model, table, device)
    info = {"extensions": serve.used, "state": matched}
    return LoadedModelNew(model, model, params, buffers, info)


def _by_name(arguments: Sequence[Any]) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], dict)


def execute(text: str, loader: Any) -> dict[str, Any]:
    """Run the file's top level with `loader` in place of torch.utils.cpp_extension; its names."""
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
    """What the candidate's code raises becomes a CandidateError that names its line."""
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


def set_state(model: Any, table: Tree, device: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Give the model the task's values; (params, buffers, how they were matched), under the reference's paths.

    By name where the shape is the same; what is left by order, when counts and shapes agree; buffers of the
    candidate's own stay as they are. Raises CandidateError(bad_output_spec) for parameters that match nothing.
    """
    own_params = dict(model.named_parameters())
    own_buffers = dict(model.named_buffers())
    params, by_order = _match(own_params, dict(table.get("params", {})), "parameter", strict=True)
    plain = {k: v for k, v in vars(model).items() if isinstance(v, torch.Tensor) and k in table.get("buffers", {})}
    buffers, _ = _match(own_buffers | plain, dict(table.get("buffers", {})), "buffer", strict=False)
    with torch.no_grad():
        for path, live in (*params.items(), *buffers.items()):
            source = table["params"] if path in params else table["buffers"]
            live.data.copy_(to_device(source[path], device))
    missing = sorted(path for path, t in table.get("params", {}).items() if t is not None and path not in params)
    params, buffers = (
        _all_of(table.get("params", {}), params, device),
        _all_of(table.get("buffers", {}), buffers, device),
    )
    how = "by order" if by_order else "by name" if params or buffers else "none"
    return params, buffers, how + (f"; the task's {', '.join(missing[:4])} not used" if missing else "")


def _all_of(given: Mapping[str, Any], found: dict[str, Any], device: str) -> dict[str, Any]:
    """Every path of the task in its order; what the candidate does without is a copy that nothing touches."""
    return {p: found[p] if p in found else to_device(t, device).clone() for p, t in given.items() if t is not None}


def _match(own: dict[str, Any], given: dict[str, Any], what: str, *, strict: bool) -> tuple[dict[str, Any], bool]:
    """{the task's path: the candidate's tensor}, and whether some were matched by order."""
    given = {path: tensor for path, tensor in given.items() if tensor is not None}
    found = {n: t for n, t in own.items() if n in given and tuple(given[n].shape) == tuple(t.shape)}
    left = [(n, t) for n, t in own.items() if n not in found]
    spare = [(n, t) for n, t in given.items() if n not in found]
    if not left or not strict:
        return found, False
    if [tuple(t.shape) for _, t in left] == [tuple(t.shape) for _, t in spare]:
        return found | {path: t for (path, _), (_, t) in zip(spare, left, strict=True)}, True
    raise CandidateError(
        f"the {what}s of ModelNew do not match the task's: it has {_listed(left)}, the task has {_listed(spare)} left",
        status="bad_output_spec",
        stage="load",
        hint="make them under the reference's names, with its shapes",
    )


def _listed(items: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(f"{n} {tuple(t.shape)}" for n, t in items[:4]) or "nothing"


# ---------------------------------------------------------------- extensions


def replace_cpp_extension(loader: Any) -> None:
    """Replace torch.utils.cpp_extension by a module that asks `loader` and compiles nothing."""
    module: Any = types.ModuleType("torch.utils.cpp_extension")
    module.load_inline = loader.load_inline
    module.load = loader.load
    module.CUDA_HOME = module.ROCM_HOME = None
    module.IS_HIP_EXTENSION = torch.version.hip is not None
    module.include_paths = module.library_paths = lambda *_, **__: []
    sys.modules["torch.utils.cpp_extension"] = module
    torch.utils.cpp_extension = module


class Prebuilt:
    """Serves extensions that were built beforehand, by key. `used`: what was served, for the verdict's checks."""

    def __init__(self, built: Sequence[Mapping[str, Any]]) -> None:
        self._built = {str(item["key"]): item for item in built}
        self.used: list[dict[str, Any]] = []

    def load_inline(self, *args: Any, **kwargs: Any) -> Any:
        """The module of the call's sources and functions."""
        return self._serve(extensions.inline(args, kwargs))

    def load(self, *args: Any, **kwargs: Any) -> Any:
        """The module of source files; they are read here as they were at discovery."""
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
        self.used.append({"how": item["how"], "seconds": item["seconds"]})
        if item["how"] == "lean":
            from hipwright.program.modelnew.torchlite_bind import LeanModule

            return LeanModule(str(item["so"]))
        return _real(str(item["module"]), str(item["so"]))


def _real(name: str, path: str) -> Any:
    """Import an extension module that was built with torch's own headers."""
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
    """Notes what is asked for, and gives objects that cannot be called."""

    def __init__(self) -> None:
        self.extensions: list[Extension] = []

    def load_inline(self, *args: Any, **kwargs: Any) -> Any:
        """Note a call."""
        return self._note(extensions.inline(args, kwargs))

    def load(self, *args: Any, **kwargs: Any) -> Any:
        """Note a call, with the files' text."""
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
    """Service that executes a file only to learn what it builds. init: text; bundle: {"init_inputs": ...}."""

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
