"""What `bench --llm` says of a model on the command line: its tables, and the options that repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hipwright.cli.tables import plain_table
from hipwright.report.bench_model import cost_lines, curves, share_words

if TYPE_CHECKING:
    from rich.console import Console

    from hipwright.cli.bench_llm import Models
    from hipwright.cli.benching import BenchmarkRun


def settings(bench: BenchmarkRun) -> dict[str, Any]:
    """What was asked of the models, for the result."""
    models = bench.wanted.models
    assert models is not None
    return {
        "specs": models.lineup.specs(),
        "agent": models.agent,
        "form": models.form,
        "temperature": models.temperature,
        "max_usd": models.limits.usd,
        "max_tokens": models.limits.tokens,
        "replay": str(models.replay) if models.replay else None,
    }


def option_words(models: Models, budget: int) -> list[str]:
    """The options that measure the same again, as words of a command line."""
    words = [word for spec in models.lineup.specs() for word in ("--llm", spec)]
    words += ["--samples", str(models.samples), "--agent", models.agent, "--form", models.form]
    words += ["--budget", str(budget)] if models.agent == "pipeline" else []
    return words + (["--temperature", str(models.temperature)] if models.temperature is not None else [])


def show(console: Console, model: Mapping[str, Any]) -> None:
    """The curves over k, what the answers were, and what they cost."""
    found = curves(model)
    heads = ("k", *found)
    cells = [(k, *(share_words(curve[k]) for curve in found.values())) for k in model["pass_at"]]
    console.print("of k samples a task, at least one (95 % interval over the tasks):")
    console.print(plain_table(heads, cells, right=heads))
    _counts(console, "answers", model["answers"])
    _counts(console, "mended without asking again", model["mended"])
    for line in cost_lines(model):
        console.print(line)


def _counts(console: Console, what: str, counts: Mapping[str, int]) -> None:
    rows: Sequence[tuple[str, str]] = [(name, str(count)) for name, count in counts.items()]
    if rows:
        console.print(plain_table((what, "rows"), rows, right=("rows",)))
