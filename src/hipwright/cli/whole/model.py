"""`hipwright model`: where a whole model's time goes, and programs for the regions that matter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hipwright.api import targets
from hipwright.cli.options import Json, Targets, Unsafe
from hipwright.cli.output import CommandOutput

if TYPE_CHECKING:
    from hipwright.api.whole.profile import ModelProfile


def model(
    given: Annotated[
        str, typer.Argument(metavar="MODEL", help="SCRIPT.py, SCRIPT.py:FACTORY, MODULE:FACTORY, or a config.json.")
    ],
    target: Targets = None,
    only_profile: Annotated[bool, typer.Option("--only-profile", help="Rank the regions, and change nothing.")] = False,
    read: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="A file or folder that the model reads; may be repeated.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Samples of a configuration's input.")] = 1,
    length: Annotated[int, typer.Option(min=1, help="Tokens of a configuration's input.")] = 128,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Rank a model's regions by what it can gain, and put verified programs in their place."""
    from hipwright.api.whole.handle import clock_of, model_zygote, opened
    from hipwright.api.whole.profile import profile_model
    from hipwright.api.whole.source import model_source

    source = model_source(given, read=read or (), batch=batch, length=length)
    clock = clock_of(targets.choose(target))
    output = CommandOutput(json_mode=json_mode)
    with model_zygote(source, clock, unsafe=unsafe) as zygote, opened(source, clock, zygote) as handle:
        profile = profile_model(handle, clock, listener=output.stages())
    if json_mode:
        output.result({"model": source.shown, **profile.to_dict()})
    else:
        print_profile(output, profile)
    return 0


def print_profile(output: CommandOutput, profile: ModelProfile) -> None:
    """Two tables: the regions by rank, and what stays."""
    from hipwright.cli.display.tables import plain_table
    from hipwright.report.formatting import number, percent

    out, told = output.console(), profile.told
    out.print(f"{told['class']}: {told['parameters']:,} parameters, inputs {', '.join(told['inputs'])}", style="bold")
    total = number(profile.seconds * 1e6)
    out.print(f"one forward: {total} µs, {profile.operators} operators ({profile.clock.label}: {profile.clock.where})")
    heads = ("", "region", "class", "calls", "operators", "share", f"µs ({profile.clock.label})", "model at most")
    rows = [
        (
            str(rank + 1),
            places(region.paths),
            region.calls[0].kind,
            str(len(region.calls)),
            str(region.calls[0].operators),
            percent(profile.share(region.seconds)),
            number(region.seconds * 1e6),
            f"{profile.at_most(region):.2f}x",
        )
        for rank, region in enumerate(profile.regions)
    ]
    out.print(plain_table(heads, rows, right=heads[3:]))
    for one in profile.stays:
        if (share := profile.share(one.seconds)) >= 0.0005:
            out.print(f"stays: {one.path or 'the model'} ({one.kind}) {percent(share)}: {one.why}")


def places(paths: tuple[str, ...]) -> str:
    """Paths of equal parts in short: the first and the last."""
    named = [path or "(the model)" for path in paths]
    return ", ".join(named) if len(named) < 3 else f"{named[0]} … {named[-1]}"
