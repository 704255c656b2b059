"""`hipwright archive`: archives as a whole. An archive is a folder, or the URL of a PostgreSQL database."""

from __future__ import annotations

from typing import Annotated

import typer

from hipwright.cli import exit_codes
from hipwright.cli.options import Json
from hipwright.cli.output import CommandOutput
from hipwright.cli.runs.damaged import plain_rows, say_damaged
from hipwright.cli.shell.command import HelpfulCommand, WholeSummaries

app = typer.Typer(
    help="Archives in folders and PostgreSQL: copy, check, migrate.", cls=WholeSummaries, rich_markup_mode=None
)

PLACE = "A folder, or postgresql://USER@HOST/DATABASE."
Place = Annotated[str | None, typer.Argument(help=f"{PLACE} [default: HIPWRIGHT_HOME]", metavar="ARCHIVE")]


@app.command("copy", cls=HelpfulCommand)
def copy(
    source: Annotated[str, typer.Argument(help=PLACE, metavar="FROM")],
    target: Annotated[str, typer.Argument(help="The same; it is made where it is missing.", metavar="TO")],
    json_mode: Json = False,
) -> int:
    """Add to TO what FROM has, without loss; again, it adds what came since."""
    from hipwright import config
    from hipwright.api.runs.archive import copy_archive
    from hipwright.archive import shown

    output = CommandOutput(json_mode=json_mode)
    done = copy_archive(source, target, output.stages())
    if json_mode:
        names = {"from": shown(config.place_of(source)), "to": shown(config.place_of(target))}
        output.result({**names, **done.to_dict(), "damaged": plain_rows(done.damaged)})
    else:
        added = f"{done.events} events and {done.blobs} programs and tasks added"
        known = f"{done.runs} new runs, {done.continued} continued, {done.unchanged} unchanged"
        output.console().print(f"{added}: {known}; every event was read back and is the same")
    say_damaged(output, done.damaged, limit=len(done.damaged))
    return exit_codes.INFRASTRUCTURE if done.damaged else 0


@app.command("check", cls=HelpfulCommand)
def check(place: Place = None, json_mode: Json = False) -> int:
    """Read every event and record of an archive; exit 3 for one that is damaged or missing."""
    from hipwright.api.runs.archive import check_place

    output = CommandOutput(json_mode=json_mode)
    name, damaged = check_place(place)
    if json_mode:
        output.result({"archive": name, "ok": not damaged, "damaged": plain_rows(damaged)})
    else:
        found = f"{len(damaged)} damaged rows" if damaged else "every row can be read, and none is missing"
        output.console().print(f"{name}: {found}")
    say_damaged(output, damaged, limit=len(damaged))
    return exit_codes.INFRASTRUCTURE if damaged else 0


@app.command("migrate", cls=HelpfulCommand)
def migrate(place: Place = None, json_mode: Json = False) -> int:
    """Bring an archive to the schema of this version of hipwright; its events stay as they are."""
    from hipwright.api.runs.archive import migrate_archive

    output = CommandOutput(json_mode=json_mode)
    name, before, after = migrate_archive(place)
    if json_mode:
        output.result({"archive": name, "before": before, "after": after})
    else:
        done = f"has schema {after} already" if before == after else f"had schema {before}, and has {after} now"
        output.console().print(f"{name} {done}")
    return 0
