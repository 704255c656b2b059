"""Pictures of terminals as SVG, and of pages as PNG."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from hipwright.errors import BadInput

WIDTH = 104
_LINES = 38
"""Lines of a terminal's picture; of longer ones the middle is left out."""
_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def terminal(said: str, path: Path, title: str) -> None:
    """Draws what a terminal shows, colours included. A picture makes no request: it names fonts and brings none."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in _shortened(said.rstrip("\n").split("\n")):
        text = Text.from_ansi(line)
        text.rstrip()
        console.print(text, overflow="fold")
    console.print()  # the last line of a picture is cut below its letters
    drawn = console.export_svg(title=title, theme=MONOKAI, unique_id=f"hw-{path.stem}")
    drawn = _FONTS.sub("", drawn).replace("Fira Code,", "ui-monospace,Menlo,Consolas,")
    path.write_text(_BOX.sub(r'viewBox="0 0 \1 \2" width="\1" height="\2"', drawn, count=1), encoding="utf-8")


def _shortened(lines: Sequence[str]) -> list[str]:
    if len(lines) <= _LINES:
        return list(lines)
    head = _LINES * 2 // 3
    tail = _LINES - head - 1
    return [*lines[:head], f"\x1b[2m… {len(lines) - head - tail} lines …\x1b[0m", *lines[-tail:]]


def pages(wanted: Sequence[tuple[str, Path]], *, height: int = 860) -> None:
    """Pictures of pages by the system's Chromium. wanted: (address, file).

    Raises BadInput where the browser or Playwright is missing, a page does not load, or a script of it fails.
    """
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        raise BadInput("no chromium on this machine", hint="scripts/system-deps.sh chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise BadInput("playwright is not installed", hint="pip install playwright") from None
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        for address, path in wanted:
            page = opened.new_page(viewport={"width": 1180, "height": height}, reduced_motion="reduce")
            errors: list[str] = []
            page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
            answer = page.goto(address, wait_until="load")
            page.wait_for_timeout(1500)
            page.screenshot(path=str(path))
            if errors or (answer is not None and not answer.ok):
                raise BadInput(f"{address}: {errors or answer}")
        opened.close()
