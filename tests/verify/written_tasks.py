"""Task files of a setup, a body and inputs, and the judgement of a plan on one."""

from __future__ import annotations

from typing import Any

from hipwright.api.task_engine import task_engine
from hipwright.engine import write
from hipwright.events import silent
from hipwright.machine import Machine
from hipwright.records import Evaluation, Program

HEAD = "import random\nimport numpy as np\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"


def task(setup: str, body: str, inputs: str) -> str:
    """A task file. setup: a statement of the constructor, or ""; inputs: the list of `get_inputs`."""
    return (
        f"{HEAD}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {setup or 'pass'}\n\n    def forward(self, x):\n        {body}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n"
    )


def judged(made: Machine, source: str, text: str = "", choices: dict[str, Any] | None = None) -> Evaluation:
    """The evaluation of a plan on a task; of the engine's program without one."""
    with made.open_text("written", source, seed=None, listener=silent) as bench:
        program = Program(text=text) if text else write(task_engine(bench).graph, choices or {})
        return bench.evaluator.evaluate(program, timed=False)
