"""`hipwright view`: the archive in a browser."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from typing import Annotated

import typer

from hipwright import config
from hipwright.cli.options import Json
from hipwright.cli.output import CommandOutput
from hipwright.stopping import interrupted_code

PORT = 8420
TOKEN = "HIPWRIGHT_VIEW_TOKEN"


def view(
    archive: Annotated[
        str | None, typer.Argument(help="Its folder or URL; that of this folder without it.", metavar="ARCHIVE")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; other machines need a token.", metavar="HOST")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0: any free.", metavar="N")] = PORT,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            "--results", help="Show results of bench, audit, train below DIR; may be repeated.", metavar="DIR"
        ),
    ] = None,
    max_minutes: Annotated[
        float | None, typer.Option("--max-minutes", min=0, help="Stop after so long.", metavar="M")
    ] = None,
    allow_start: Annotated[
        bool, typer.Option("--allow-start", help="Let the browser start and stop searches of tasks below this folder.")
    ] = False,
    json_mode: Json = False,
) -> int:
    """Show runs and programs in a browser, live; nothing is written."""
    from hipwright.errors import HipwrightError

    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise HipwrightError(f"`hipwright view` needs {' and '.join(missing)}", hint="pip install 'hipwright[view]'")
    from hipwright.archive import shown
    from hipwright.view.serving import serving

    output = CommandOutput(json_mode=json_mode)
    place = config.place_of(archive) if archive is not None else config.archive()
    below = Path.cwd() if allow_start else None
    with serving(place, host, port, os.environ.get(TOKEN, ""), results or (), start_below=below) as served:
        if json_mode:
            output.result({"url": served.url, "archive": shown(place), "token": served.token or None})
        else:
            output.console().print(served.url)
            output.say(f"the archive {shown(place)}; Ctrl-C ends it")
        return _wait(output, max_minutes)


def _wait(output: CommandOutput, max_minutes: float | None) -> int:
    """Until the time is over (0) or the command is interrupted."""
    deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
    try:
        while deadline is None or time.monotonic() < deadline:
            time.sleep(1.0 if deadline is None else min(1.0, max(deadline - time.monotonic(), 0)))
    except KeyboardInterrupt:
        output.say("stopped")
        return interrupted_code()
    return 0
