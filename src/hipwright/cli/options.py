"""The arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hipwright.targets import CPU, TARGETS

_DEFAULTS = ", ".join((*TARGETS.default_offline, CPU.name))

TaskFile = Annotated[
    Path,
    typer.Argument(help="The PyTorch task: Model, get_inputs, get_init_inputs.", metavar="TASK"),
]
RunName = Annotated[str, typer.Argument(help="A run's id, the start of it, or `latest`.", metavar="RUN")]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help=f"A target; may be repeated. Without it: {_DEFAULTS}.",
        metavar="T",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Unsafe = Annotated[bool, typer.Option("--unsafe", help="No sandbox. Only for files that you trust like your own.")]
Llm = Annotated[
    list[str] | None,
    typer.Option(
        "--llm",
        metavar="[ROLE=]PROVIDER:MODEL[@URL][*WEIGHT]",
        help="A model that writes programs beside the engine; may be repeated. Without it: the engine alone.",
    ),
]
MaxUsd = Annotated[float | None, typer.Option("--max-usd", min=0, help="Dollars for models, never overshot.")]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", min=1, help="Tokens for models, in and out, never overshot.")
]
Price = Annotated[
    list[str] | None,
    typer.Option("--price", metavar="MODEL=IN,OUT", help="Dollars per million tokens, for a model without a price."),
]
Counters = Annotated[
    str | None,
    typer.Option(
        "--counters", metavar="on|off|auto", help="Profiles guide the search (docs/search.md). [default: auto]"
    ),
]
StopAt = Annotated[
    float | None,
    typer.Option("--stop-at", min=0.05, max=1.0, metavar="SHARE", help="End at this share of the roofline: 0.9"),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, max=64, help="Evaluations at a time. [default: 1; of a fleet, a round]"),
]
Fleet = Annotated[
    str, typer.Option("--fleet", help="Judge on this fleet (`hipwright fleet up`), not here.", metavar="HOST:PORT")
]
Place = Annotated[str, typer.Option("--place", help="Which of the fleet's devices, if several: gfx942.", metavar="D")]
