"""Every page in a real browser: three widths, both colour schemes, no console error, nothing serious found by axe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hipwright.view.serving import serving
from tests.report.report_sample import HOSTILE
from tests.view.browser import browser, findings, looking, needs_browser, settled
from tests.view.results_sample import sample_results
from tests.view.view_sample import sample_archive

pytestmark = needs_browser
PAGES = (
    "",
    "runs/r1",
    "runs/r1?axis=time",
    "runs/r1/programs/3",
    "runs/r1/programs/6",
    "compare?a=r1/4&b=r1/6",
    "results",
    "no",
)
WIDTHS = (360, 768, 1280)
TOO_WIDE = """width => [...document.querySelectorAll("body *")].filter(e =>
    !e.closest(".scroll, .skip, .hide, .mapgrid") && e.getBoundingClientRect().right > width + 1)
    .map(e => e.outerHTML.slice(0, 120))"""


@contextmanager
def served_sample(home: Path, text: str) -> Iterator[str]:
    """The address of an archive with a run that ended and one that did not."""
    sample_archive(home, text)
    sample_archive(home, text, run="r2", finished=False)
    with serving(home, results=[sample_results(home / "results", text)]) as found:
        yield found.url


def results_of(page: Any, url: str, sides: str = "ab") -> list[str]:
    """The addresses of each kind's folders of results, and of the comparison of each two."""
    page.goto(url + "results")
    links = "[...document.querySelectorAll('td a')].map(a => [a.textContent, a.pathname.slice(1)])"
    found = {name.split("/")[-1]: address for name, address in page.evaluate(links)}
    keys = {name: address.split("/")[-1] for name, address in found.items()}
    pairs = [f"results/compare?a={keys[k + '-a']}&b={keys[k + '-b']}" for k in ("bench", "audit", "train")]
    return [*(address for name, address in found.items() if name[-1] in sides), *pairs]


@pytest.fixture(scope="module", params=["", HOSTILE], ids=["plain", "hostile"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_sample(tmp_path_factory.mktemp("home"), request.param) as url:
        yield url


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_sample(tmp_path_factory.mktemp("plain"), "") as url:
        yield url


@pytest.fixture(scope="module")
def opened() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_and_say_nothing_in_the_console(opened: Any, served: str, width: int, scheme: str) -> None:
    with looking(opened, width=width, scheme=scheme) as page:
        for address in (*PAGES, *results_of(page, served)):
            page.goto(served + address)
            settled(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, address
            assert page.evaluate(TOO_WIDE, width) == [], address
            assert page.evaluate("document.images.length") == 0
            paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, paper[4:-1].split(","))) < 150) == (scheme == "dark"), paper
        said = [text for text in page.said if "404 (Not Found)" not in text]  # the page that is not there
        assert [text for text in said if "net::ERR_ABORTED" not in text] == []  # a stream that a new page ends


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_serious(opened: Any, plain: str, width: int, scheme: str) -> None:
    with looking(opened, width=width, scheme=scheme, bypass_csp=True) as page:
        for address in (*PAGES, *results_of(page, plain, "a")):
            page.goto(plain + address)
            settled(page)
            if address in PAGES:  # a training's answers are the same markup many times
                page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert findings(page) == [], address


def test_the_theme_is_chosen_by_keyboard_and_kept(opened: Any, served: str) -> None:
    with looking(opened) as page:
        page.goto(served)
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.focus("#theme")
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        assert page.inner_text("#theme") == "Theme: dark"
        page.goto(served + "runs/r1")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert dark != paper and page.inner_text("#theme") == "Theme: dark"
        assert page.said == [] or all("ERR_ABORTED" in text for text in page.said)


def test_from_the_list_to_a_program_and_a_comparison(opened: Any, served: str) -> None:
    with looking(opened) as page:
        page.goto(served)
        page.click("a[href='/runs/r1']")
        page.click("#proposals a[href$='/programs/6']")
        assert "#6" in page.inner_text("h1")
        page.click("text=Compare the two")
        assert "B needs" in page.inner_text(".lead")
        page.goto(served)
        page.check("input[name=a][value=r1]")
        page.check("input[name=b][value=r2]")
        page.click("text=Compare A and B")
        assert page.input_value("#a") == "r1" and page.input_value("#b") == "r2"
