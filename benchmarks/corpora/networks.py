"""Task files of whole networks: an expression that builds one, the shapes of its inputs, and a mode."""

from __future__ import annotations

from collections.abc import Sequence

MODES = ("eval", "train")

TEXT = '''"""{title}, {mode} mode."""

{imports}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = {build}
        self.{call}

    def forward(self, {names}):
        return self.net({names})


def get_inputs():
    return [{inputs}]
'''

TORCHVISION = """import torch

try:
    import torchvision
except RuntimeError:  # built for another build of torch: its own operators are declared, and none can be called
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision
except ImportError:
    pass"""
"""The import of torchvision, where it is there: the wheel of PyPI refuses it beside a build of torch for the CPU."""


def network_task(title: str, imports: str, build: str, shapes: Sequence[Sequence[int]], mode: str) -> str:
    """The text of a task. build: the expression of the network; shapes: of its inputs, floats from 0 to 1."""
    return module_task(title, imports, build, [f"torch.rand({', '.join(map(str, shape))})" for shape in shapes], mode)


def module_task(title: str, imports: str, build: str, inputs: Sequence[str], mode: str) -> str:
    """The text of a task. build: the expression of the module; inputs: those of its tensors."""
    assert mode in MODES
    return TEXT.format(
        title=title,
        mode="evaluation" if mode == "eval" else "training",
        imports=imports,
        build=build,
        call="eval()" if mode == "eval" else "train()",
        names=", ".join(f"x{number}" for number in range(len(inputs))),
        inputs=", ".join(inputs),
    )
