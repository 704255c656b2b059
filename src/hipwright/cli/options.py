"""The arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TaskFile = Annotated[
    Path,
    typer.Argument(help="The PyTorch task: Model, get_inputs, get_init_inputs.", metavar="TASK"),
]
RunName = Annotated[str, typer.Argument(help="A run's id, the start of it, or `latest`.", metavar="RUN")]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", help="A target; may be repeated. Without it: gfx942, gfx950, cpu.", metavar="T"),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Unsafe = Annotated[
    bool, typer.Option("--unsafe", help="Run without a sandbox. Only for files that you trust like your own.")
]
