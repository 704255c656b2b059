"""A drop-in as a folder: the task, the program, its weights, and what its calls look like."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from hipwright.api.files import prepare_folder, read_text, write_files
from hipwright.api.live.callable import callable_program
from hipwright.api.live.exported import InputName, LiveTask, live_task, title_of
from hipwright.api.live.module import OptimizedModule, ProgramCall, tensor_at
from hipwright.api.live.task_file import TaskFile, task_file
from hipwright.api.live.traced import TracedTask
from hipwright.errors import BadInput
from hipwright.records import Program

FORMAT = 1
FILE, WEIGHTS = "module.json", "weights.pt"


def save(result: Any, folder: Path) -> Path:
    """Writes a ModuleResult's files. Raises BadInput for arguments that JSON cannot hold."""
    live: LiveTask = result.live
    described = _described(live, result)
    prepare_folder(folder)
    result.search.write(folder)
    write_files(folder, {"task.py": live.task.text, FILE: described})
    state = {path: tensor_at(result.module.original, path, live.constants).detach().cpu() for path in live.task.state}
    torch.save(state, folder / WEIGHTS)
    return folder


def _described(live: LiveTask, result: Any) -> str:
    constants = [one for one in live.leaves if not isinstance(one, InputName)]
    if not all(one is None or isinstance(one, (bool, int, float, str)) for one in constants):
        raise BadInput("an argument that is no tensor cannot be saved", hint="pass numbers, strings and None")
    leaves = [{"input": one.name} if isinstance(one, InputName) else {"value": one} for one in live.leaves]
    task = live.task
    plain = {
        "format": FORMAT,
        "name": task.name,
        "run": result.run,
        "targets": [name for name, one in result.search.program_targets.items() if one.verdict and one.verdict.passed],
        "searched": list(result.search.detail.run.targets),
        "arguments": _spec(live.arguments),
        "result": _spec(live.result),
        "leaves": leaves,
        "inputs": list(task.inputs),
        "state": dict(task.state),
        "outputs": list(task.outputs),
        "writes": list(task.writes),
        "draws": task.draws,
        "constants": sorted(live.constants),
        "shapes": [list(shape) for shape in live.shapes],
    }
    return json.dumps(plain, indent=1) + "\n"


def _spec(spec: Any) -> str:
    try:
        return str(pytree.treespec_dumps(spec))
    except NotImplementedError as error:
        raise BadInput(f"arguments or results of a class of their own cannot be saved: {error}") from error


def load_module(folder: Path, module: object) -> OptimizedModule:
    """The drop-in of a folder. Raises BadInput for a folder that is none, and for a module with another graph."""
    try:
        plain = json.loads(read_text(folder / FILE, "module"))
    except ValueError as error:
        raise BadInput(f"{folder / FILE} is no description of a module") from error
    if plain.get("format") != FORMAT:
        raise BadInput(f"{folder / FILE} has format {plain.get('format')}", hint=f"this version reads {FORMAT}")
    text = read_text(folder / "task.py", "task")
    file = task_file(text)
    weights = torch.load(folder / WEIGHTS, weights_only=True)
    live = _live(plain, text, file, weights)
    if module is None:
        original: Any = TracedModule(live, file.model, weights)
        live = _of_traced(live)
    else:
        original = module
        _check_same(original, live, file)
    program, why = _program(plain, live, folder)
    return OptimizedModule(original, live, program, why)


def _live(plain: dict[str, Any], text: str, file: TaskFile, weights: dict[str, torch.Tensor]) -> LiveTask:
    task = TracedTask(
        name=plain["name"],
        text=text,
        inputs=tuple(plain["inputs"]),
        state=plain["state"],
        outputs=tuple(plain["outputs"]),
        writes=tuple(plain["writes"]),
        draws=plain["draws"],
    )
    tensors = file.inputs
    return LiveTask(
        task=task,
        arguments=pytree.treespec_loads(plain["arguments"]),
        leaves=tuple(InputName(one["input"]) if "input" in one else one["value"] for one in plain["leaves"]),
        result=pytree.treespec_loads(plain["result"]),
        constants={path: weights[path] for path in plain["constants"] if path in weights},
        shapes=tuple(map(tuple, plain["shapes"])),
        types={name: (t.dtype, t.ndim) for name, t in zip(task.inputs, tensors, strict=True)},
        state_types={path: (tuple(t.shape), t.dtype) for path, t in weights.items()},
    )


def _of_traced(live: LiveTask) -> LiveTask:
    """The task of a TracedModule, whose state has the task's own names."""
    to = {path: f"model.{name}" for path, name in live.task.state.items()}
    state = {to[path]: name for path, name in live.task.state.items()}
    task = replace(live.task, state=state, writes=tuple(to[path] for path in live.task.writes))
    types = {to[path]: found for path, found in live.state_types.items()}
    return replace(live, task=task, state_types=types, constants={})


def _check_same(module: Any, live: LiveTask, file: TaskFile) -> None:
    """Traces the module anew, and compares the texts of the two tasks."""
    given = dict(zip(live.task.inputs, file.inputs, strict=True))
    leaves = [given[one.name] if isinstance(one, InputName) else one for one in live.leaves]
    args, kwargs = pytree.tree_unflatten(leaves, live.arguments)
    own = live_task(module, args, kwargs, title_of(module)).task.text
    if own.split("\n")[1:] != live.task.text.split("\n")[1:]:
        raise BadInput("the folder is of another module: their graphs differ", hint="optimise this one")


def _program(plain: dict[str, Any], live: LiveTask, folder: Path) -> tuple[ProgramCall | None, str]:
    if not plain["targets"] or not (folder / "program.py").exists():
        return None, "no program was verified"
    program = Program(text=read_text(folder / "program.py", "program"))
    return callable_program(live.task, program, plain["targets"], plain["searched"])


class TracedModule(torch.nn.Module):  # type: ignore[misc]
    """A traced graph in the place of the module that it was traced from. Raises BadInput for calls of another kind."""

    def __init__(self, live: LiveTask, model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.model, self._live = model, live
        paths = {name: path for path, name in live.task.state.items()}
        own = dict([*model.named_parameters(), *model.named_buffers()])
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(weights[paths[name]])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module returned, by its graph."""
        live = self._live
        leaves, structure = pytree.tree_flatten((args, kwargs))
        if structure != live.arguments:
            raise BadInput("a call with other arguments than the saved one", hint="load(folder, module) takes all")
        pairs = list(zip(live.leaves, leaves, strict=True))
        if any(not isinstance(known, InputName) and known != leaf for known, leaf in pairs):
            raise BadInput("a number among the arguments is another than the saved one")
        given = {known.name: leaf for known, leaf in pairs if isinstance(known, InputName)}
        try:
            outputs = self.model(*(given[name] for name in live.task.inputs))
        except AssertionError as error:
            raise BadInput("the saved graph does not hold at these sizes", hint="load(folder, module) does") from error
        found = [outputs[one] if isinstance(one, int) else given.get(str(one)) for one in live.task.outputs]
        return pytree.tree_unflatten(found, live.result)
