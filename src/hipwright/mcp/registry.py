"""The tools by name: what each is told to be, its arguments and its function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from hipwright.errors import BadInput
from hipwright.events import Listener
from hipwright.mcp import searches, tools
from hipwright.mcp.arguments import Reply, ToolArguments


@dataclass(frozen=True)
class Tool:
    """One tool. slow: it evaluates or profiles, so it waits for its turn, reports progress and can be cancelled."""

    about: str
    arguments: type[ToolArguments]
    run: Callable[[tools.ToolContext, Any, Listener], Reply]
    slow: bool = False

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        _, parts = msgspec.json.schema_components([self.arguments])
        schema = {key: value for key, value in parts[self.arguments.__name__].items() if key != "description"}
        return {"additionalProperties": False, **schema}

    def read(self, given: dict[str, Any] | None) -> Any:
        """The arguments of a call. Raises BadInput for what the schema does not allow."""
        try:
            return msgspec.convert(given or {}, self.arguments)
        except msgspec.ValidationError as error:
            raise BadInput(str(error), hint=f"arguments: {', '.join(self.arguments.__struct_fields__)}") from error


TOOLS: dict[str, Tool] = {
    "list_tasks": Tool(
        "The tasks (PyTorch references) below the root, with a line about each.", tools.ListTasks, tools.list_tasks
    ),
    "evaluate_program": Tool(
        "Compile, verify and estimate one program (or ModelNew) for a task: verdict, evidence, estimate or timing and "
        "coverage for each target. Every call draws new secret inputs.",
        tools.OneProgram,
        tools.evaluate_program,
        slow=True,
    ),
    "profile_program": Tool(
        "What holds a program back: hardware counters where a GPU is, else registers, LDS, occupancy, instruction mix "
        "and a static estimate, with the bottleneck in texts.",
        tools.OneProgram,
        tools.profile_program,
        slow=True,
    ),
    "optimize": Tool(
        "Search for a fast, verified program of a task by the engine alone: minutes, more with a larger budget. The "
        "answer has the program's text.",
        searches.Optimize,
        searches.optimize,
        slow=True,
    ),
    "start_from": Tool(
        "Search from a kernel (a program, ModelNew, CUDA or HIP source): it is judged first, and the answer compares "
        "the winner with it.",
        searches.StartFrom,
        searches.start_from,
        slow=True,
    ),
    "model": Tool(
        "Rank a whole model's regions by what it can gain, and put verified programs in their place.",
        searches.WholeModel,
        searches.model,
        slow=True,
    ),
    "explain_failure": Tool(
        "Why an evaluation of this session failed, in plain words: whose fault, the line, the fix.",
        tools.Explain,
        tools.explain_failure,
    ),
    "best_program": Tool(
        "The best verified program of a task from the archive of earlier runs, with exemplars.",
        tools.ArchiveArguments,
        tools.best_program,
    ),
    "exemplars": Tool(
        "Verified kernels of similar tasks, from the archive of earlier runs.", tools.ArchiveArguments, tools.exemplars
    ),
}
