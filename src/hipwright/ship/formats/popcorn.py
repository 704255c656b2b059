"""`popcorn`: GPU MODE's submission, with the problem folder that it answers (task.yml, task.py, reference.py).

Facts: libkernelbot of gpu-mode/kernelbot, its modules task (task.yml) and submission (directives of the first comment).
`data` is a tuple of forward's arguments; a module with parameters or buffers has one more, a dict of them by name.
"""

from __future__ import annotations

import json
from typing import Any

from hipwright.program.modelnew.export import export
from hipwright.ship.constructor import constructor_arguments
from hipwright.ship.subject import Files, ShipFormat, ShippedProgram

GPUS = ("MI300", "MI355X")
_HEAD = """#!POPCORN leaderboard {leaderboard}
#!POPCORN gpus {gpus}
# Written by hipwright from program {key}. The first lines are read by GPU MODE's popcorn-cli.

"""
_CALL = '''

_models = {{}}


def custom_kernel(data):
    """The leaderboard's entry: forward's arguments{state}."""
    given = data if isinstance(data, tuple) else (data,)
    if None not in _models:
        _models[None] = ModelNew({init})
    model = _models[None]
{call}
'''
_WITH_STATE = """    *inputs, state = given
    if hasattr(model, "repack"):
        model.repack()  # the weights are new at each call
    with torch.no_grad():
        return torch.func.functional_call(model, state, tuple(inputs))"""
_WITHOUT_STATE = """    with torch.no_grad():
        return model(*given)"""

_TASK_PY = '''"""The types of one problem: what generate_input makes, and what custom_kernel returns."""

from typing import Any, TypedDict, TypeVar

input_t = TypeVar("input_t", bound=tuple[Any, ...])
output_t = TypeVar("output_t", bound=Any)


class TestSpec(TypedDict):
    """workload: 0 is get_inputs(), or a number in get_input_groups(); seed: of the inputs."""

    workload: int
    seed: int
'''

_REFERENCE = '''

# ---------------------------------------------------------------- what GPU MODE's eval.py calls
# By hipwright; above is the task's own file.

import torch as _torch
from torch.utils import _pytree

_DEVICE = "cuda" if _torch.cuda.is_available() else "cpu"
_FLOOR = {{_torch.float32: 1e-5, _torch.float16: 1e-3, _torch.bfloat16: 8e-3, _torch.float64: 1e-13}}


def _model():
    return Model({init})


def generate_input(workload: int, seed: int):
    """forward's arguments{state}, on the GPU where there is one."""
    _torch.manual_seed(seed)
    inputs = list(get_inputs() if workload == 0 and "get_inputs" in globals() else get_input_groups()[{group}])
{state_code}    return _pytree.tree_map_only(_torch.Tensor, lambda t: t.to(_DEVICE), tuple(inputs))


def _run(data, wide):
    def widened(t):
        return t.double() if wide and t.is_floating_point() else t

    data = _pytree.tree_map_only(_torch.Tensor, widened, data)
    with _torch.no_grad():
        model = _model().to(_DEVICE)
        model = model.double() if wide else model
{run_code}

def ref_kernel(data):
    """The reference's outputs."""
    return _run(data, wide=False)


def check_implementation(data, output):
    """(whether the output is right, why not): against the reference in float64, within four times its own error."""
    exact, honest = (_pytree.tree_leaves(_run(data, wide)) for wide in (True, False))
    got = _pytree.tree_leaves(output)
    if len(got) != len(honest):
        return False, f"{{len(got)}} outputs, the reference has {{len(honest)}}"
    for number, (g, h, e) in enumerate(zip(got, honest, exact)):
        if not isinstance(g, _torch.Tensor) or g.shape != h.shape or g.dtype != h.dtype:
            return False, f"output {{number}} is no tensor of {{h.dtype}} and {{tuple(h.shape)}}"
        if not h.is_floating_point():
            if not _torch.equal(g, h):
                return False, f"output {{number}} differs"
            continue
        scale = e.double().square().mean().sqrt().clamp_min(1e-30)
        error, usual = (((t.double() - e).square().mean().sqrt() / scale).item() for t in (g, h))
        if not error <= max(4 * usual, _FLOOR.get(g.dtype, 0.0)):  # NaN fails too
            return False, f"output {{number}}: error {{error:.2e}}, the reference's own is {{usual:.2e}}"
    return True, ""
'''
_STATE_CODE = """    model = _model()
    inputs.append({**dict(model.named_parameters()), **dict(model.named_buffers())})
    inputs[-1] = {name: tensor.detach() for name, tensor in inputs[-1].items()}
"""
_RUN_STATE = """        *inputs, state = data
        return _torch.func.functional_call(model, state, tuple(inputs))
"""
_RUN_PLAIN = """        return model(*data)
"""


def _files(subject: ShippedProgram) -> Files:
    init, stateful = constructor_arguments(subject.init), has_state(subject)
    model_new = export(subject.program, subject.parsed, subject.source)
    head = _HEAD.format(leaderboard=subject.name, gpus=" ".join(GPUS[:1]), key=subject.program.key)
    more = ", and the dict of the module's tensors" if stateful else ""
    call = _CALL.format(init=init, call=_WITH_STATE if stateful else _WITHOUT_STATE, state=more)
    groups = "workload - 1" if "def get_inputs" in subject.source else "workload"
    reference = subject.source.rstrip("\n") + _REFERENCE.format(
        init=init,
        state=more,
        group=groups,
        state_code=_STATE_CODE if stateful else "",
        run_code=_RUN_STATE if stateful else _RUN_PLAIN,
    )
    return {
        "submission.py": head + model_new + call,
        "reference.py": reference,
        "task.py": _TASK_PY,
        "task.yml": _task_yml(subject),
    }


def has_state(subject: ShippedProgram) -> bool:
    """Whether the module has parameters or buffers."""
    return bool(subject.state["params"] or subject.state["buffers"])


def _task_yml(subject: ShippedProgram) -> str:
    """The problem's file, as JSON values, which are YAML: it lies in a folder of gpu-mode/reference-kernels."""
    own = [{"name": name, "source": name} for name in ("task.py", "reference.py")]
    shared = [{"name": name, "source": f"../{name}"} for name in ("eval.py", "utils.py")]
    count = len(subject.examples.workloads) if subject.examples is not None else 1
    cases = [{"workload": number, "seed": 1000 + number} for number in range(count)]
    fields: dict[str, Any] = {
        "files": [{"name": "submission.py", "source": "@SUBMISSION@"}, *own, *shared],
        "lang": "py",
        "description": f"The PyTorch module of {subject.name}; reference.py has its code.",
        "config": {"main": "eval.py"},
        "templates": {"Python": "submission.py"},
        "tests": cases,
        "benchmarks": [{**case, "seed": case["seed"] + 1000} for case in cases],
        "test_timeout": 180,
        "benchmark_timeout": 180,
        "ranked_timeout": 420,
        "ranking_by": "geom",
        "gpus": list(GPUS),
    }
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in fields.items())


FORMAT = ShipFormat("popcorn", "GPU MODE's submission.py, with the problem that it answers", _files)
