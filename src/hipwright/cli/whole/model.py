"""`hipwright model`: where a whole model's time goes, and programs for the regions that matter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hipwright.api import targets
from hipwright.cli import exit_codes
from hipwright.cli.options import Json, Targets, Unsafe
from hipwright.cli.output import CommandOutput

if TYPE_CHECKING:
    from hipwright.api.whole.improve import ModelRequest


def model(
    given: Annotated[
        str, typer.Argument(metavar="MODEL", help="SCRIPT.py, SCRIPT.py:FACTORY, MODULE:FACTORY, or a config.json.")
    ],
    target: Targets = None,
    budget: Annotated[int, typer.Option(min=1, help="Evaluations at most, over all regions.")] = 40,
    regions: Annotated[int, typer.Option(min=1, help="Regions to search at most, the best first.")] = 4,
    out: Annotated[
        Path | None, typer.Option(help="Folder for model.json, model.html and the regions' files.", metavar="DIR")
    ] = None,
    only_profile: Annotated[bool, typer.Option("--only-profile", help="Rank the regions, and change nothing.")] = False,
    metric_tolerance: Annotated[
        float, typer.Option(min=0, help="Share of the script's metric(model) that may change.")
    ] = 1e-3,
    read: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="A file or folder that the model reads; may be repeated.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Samples of a configuration's input.")] = 1,
    length: Annotated[int, typer.Option(min=1, help="Tokens of a configuration's input.")] = 128,
    seed: Annotated[int, typer.Option(help="Decides every choice of the searches.")] = 0,
    max_minutes: Annotated[float | None, typer.Option(min=0.01, help="Of each search: no evaluation after it.")] = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Rank a model's regions by what it can gain, and put verified programs in their place."""
    from hipwright.api.files import prepare_folder
    from hipwright.api.whole.improve import ModelRequest
    from hipwright.api.whole.source import model_source

    request = ModelRequest(
        source=model_source(given, read=read or (), batch=batch, length=length),
        targets=targets.choose(target),
        budget=budget,
        regions=regions,
        seed=seed,
        max_minutes=max_minutes,
        metric_tolerance=metric_tolerance,
        unsafe=unsafe,
    )
    if out is not None:
        prepare_folder(out)
    output = CommandOutput(json_mode=json_mode)
    return _profile(request, output) if only_profile else _improve(request, output, out)


def _profile(request: ModelRequest, output: CommandOutput) -> int:
    from hipwright.api.whole.handle import clock_of, model_zygote, opened
    from hipwright.api.whole.profile import profile_model
    from hipwright.cli.whole.tables import print_profile

    source, clock = request.source, clock_of(request.targets)
    with model_zygote(source, clock, unsafe=request.unsafe) as zygote, opened(source, clock, zygote) as handle:
        profile = profile_model(handle, clock, listener=output.stages())
    if output.json_mode:
        output.result({"model": source.shown, **profile.to_dict()})
    else:
        print_profile(output.console(), profile)
    return 0


def _improve(request: ModelRequest, output: CommandOutput, out: Path | None) -> int:
    from hipwright.api.whole.improve import improve_model
    from hipwright.cli.whole.progress import ModelProgress
    from hipwright.cli.whole.tables import print_outcome

    outcome = improve_model(request, listener=ModelProgress(output))
    if out is not None:
        from hipwright.api.whole.files import write_outcome

        write_outcome(outcome, request, out)
    if output.json_mode:
        output.result({"model": request.source.shown, **outcome.to_dict()})
    else:
        print_outcome(output.console(), outcome)
        if out is not None:
            output.console().print(f"written: {out / 'model.html'}; load_parts puts the programs into a model of yours")
        elif outcome.kept:
            output.console().print("not written: the same command with --out DIR has its programs from the archive")
    return 0 if outcome.passed else exit_codes.FAILED
