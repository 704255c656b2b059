from hipwright.api.dynamo.entry import backend as backend
from hipwright.api.dynamo.entry import compiled_graphs as compiled_graphs
from hipwright.api.evaluate import evaluate as evaluate
from hipwright.api.library import kernel as kernel
from hipwright.api.library import load as load
from hipwright.api.library import optimize as optimize
from hipwright.api.result import Result as Result
from hipwright.records import Evaluation as Evaluation
from hipwright.records import Program as Program
from hipwright.records import Task as Task

__version__: str
__all__ = [
    "Evaluation",
    "Program",
    "Result",
    "Task",
    "backend",
    "compiled_graphs",
    "evaluate",
    "kernel",
    "load",
    "optimize",
]
