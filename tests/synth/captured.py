"""Task files with a given forward, and their graphs captured in the test process."""

from __future__ import annotations

from functools import cache
from typing import Any

TASK = """import torch
from torch import nn
from torch.nn import functional as F

ROWS = 8
WIDTH = 12


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{fields}

    def forward(self, x):
{body}


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return []
"""
FIELDS = {
    "w": "self.w = nn.Parameter(torch.randn(WIDTH))",
    "v": "self.v = nn.Parameter(torch.randn(WIDTH))",
    "w2": "self.w2 = nn.Parameter(torch.randn(WIDTH, WIDTH))",
}


def task(body: str, *fields: str) -> str:
    """A task file whose forward(self, x) is `body`; fields: parameters it may read."""
    lines = "\n".join(" " * 8 + line for line in body.splitlines())
    return TASK.format(body=lines, fields="\n".join(" " * 8 + FIELDS[name] for name in fields))


@cache
def captured(source: str) -> dict[str, Any]:
    """The captured graph of a task on its own inputs."""
    import json
    import logging

    from hipwright.capture.forward import capture
    from hipwright.task.host.load import TaskModule

    file = TaskModule("task.py", source)
    logging.disable(logging.CRITICAL)  # torch's tracer logs much, and pytest would keep it
    try:
        plain: dict[str, Any] = json.loads(json.dumps(capture(file.model(0), file.inputs(0))))
        return plain
    finally:
        logging.disable(logging.NOTSET)


def each(bodies: list[str]) -> list[dict[str, Any]]:
    """The graph of every body. All are captured as outputs of one graph; each result keeps one of the outputs."""
    calls = ", ".join(f"self.part_{k}(x)" for k in range(len(bodies)))
    source = task(f"return {calls},", *FIELDS)
    parts = "".join(
        f"    def part_{k}(self, x):\n" + "".join(f"        {line}\n" for line in body.splitlines()) + "\n"
        for k, body in enumerate(bodies)
    )
    graph = captured(source.replace("    def forward", f"{parts}    def forward"))
    return [{**graph, "output": output} for output in graph["output"]["tuple"]]
