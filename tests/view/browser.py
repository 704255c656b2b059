"""A real Chromium by Playwright, and axe, for the tests of the pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = [name for name in ("playwright", "axe_playwright_python") if find_spec(name) is None]
needs_browser = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium here: scripts/system-deps.sh chromium installs it"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}, of the extra `test`"),
]
SERIOUS = ("serious", "critical")


@contextmanager
def browser() -> Iterator[Any]:
    """A Playwright browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def looking(opened: Any, *, width: int = 1280, scheme: str = "light", bypass_csp: bool = False) -> Iterator[Any]:
    """A page of the browser; what its console says, errors of scripts and refused requests are in `page.said`."""
    context = opened.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=bypass_csp, reduced_motion="reduce"
    )
    page = context.new_page()
    page.said = []
    page.on("console", lambda message: page.said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: page.said.append(f"error: {error}"))
    page.on("requestfailed", lambda request: page.said.append(f"failed: {request.url} {request.failure}"))
    try:
        yield page
    finally:
        context.close()


def settled(page: Any) -> None:
    """Waits until the page has heard of the archive's state, where it listens."""
    page.wait_for_selector("body:not([data-events]), body[data-shown]", state="attached")


def first_paint(page: Any) -> float:
    """Seconds from the request to the first contentful paint."""
    paint = "performance.getEntriesByType('paint').find(e => e.name == 'first-contentful-paint')?.startTime ?? 0"
    while not (found := page.evaluate(paint)):
        page.wait_for_timeout(20)
    return float(found) / 1000


def findings(page: Any) -> list[str]:
    """What axe finds serious or critical: the rule, and the first places."""
    source = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    page.evaluate(source)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['impact']} {one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:4]]}"
        for one in found
        if one["impact"] in SERIOUS
    ]
