"""A page while its run goes on: each event is on it within a second; 10,000 events are drawn within one."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hipwright.archive import Archive
from hipwright.view.serving import serving
from tests.load import Watch
from tests.search.landscape import Judge, begin
from tests.view.browser import browser, first_paint, looking, needs_browser, settled
from tests.view.view_sample import long_archive, sample_archive

pytestmark = needs_browser
WITHIN_S = 1.0


@pytest.fixture(scope="module")
def opened() -> Iterator[Any]:
    with browser() as found:
        yield found


def test_a_real_search_is_shown_while_it_runs(opened: Any, tmp_path: Path) -> None:
    done = threading.Event()

    def search() -> None:
        with Archive(tmp_path) as archive:
            begin(archive, Judge(delay=0.4), budget=14)
        done.set()

    with Archive(tmp_path):
        pass
    with serving(tmp_path) as served, looking(opened) as page:
        page.goto(served.url)
        thread = threading.Thread(target=search)
        thread.start()
        page.wait_for_selector("#runs a[href^='/runs/']")
        page.click("#runs a[href^='/runs/']")
        seen = set()
        while not done.is_set():
            seen.add(page.inner_text(".budget span"))
            page.wait_for_timeout(100)
        thread.join()
        page.locator("#head .badge", has_text="passed").wait_for()
        assert len(seen) > 5, "the count of evaluations rose before the eyes"
        assert page.inner_text(".budget span") == "14 of 14 evaluations"
        assert page.locator("#best .mark").count() >= 1, "a plot that was not there at first"
        assert [text for text in page.said if "ERR_ABORTED" not in text] == []


def test_an_event_is_on_the_page_within_a_second(opened: Any, tmp_path: Path) -> None:
    sample_archive(tmp_path, finished=False)
    delays = []
    with serving(tmp_path) as served, looking(opened) as page, Archive(tmp_path) as archive, Watch() as watch:
        page.goto(served.url + "runs/r1")
        settled(page)
        for count in range(8):
            page.wait_for_timeout(150 * count)
            began = time.monotonic()
            archive.append("r1", "interrupted", -1, {"reason": f"pause {count}"})
            page.locator("#events", has_text=f"pause {count}").wait_for()
            delays.append(time.monotonic() - began)
    print(f"event to page: median {statistics.median(delays):.2f} s, worst {max(delays):.2f} s")
    assert max(delays) < WITHIN_S * watch.load


def test_what_the_reader_has_opened_chosen_and_focused_stays(opened: Any, tmp_path: Path) -> None:
    sample_archive(tmp_path, finished=False)
    with serving(tmp_path) as served, looking(opened, width=360) as page, Archive(tmp_path) as archive:
        page.goto(served.url + "runs/r1?axis=time&order=fastest")
        settled(page)
        page.focus("#proposals tbody tr:nth-child(2) a")
        focused = page.evaluate("document.activeElement.href")
        page.evaluate("document.querySelector('#proposals .scroll').scrollLeft = 77")
        archive.append("r1", "interrupted", -1, {"reason": "a pause"})
        page.locator("#events", has_text="a pause").wait_for()
        assert page.evaluate("document.activeElement.href") == focused
        assert page.evaluate("document.querySelector('#proposals .scroll').scrollLeft") == 77
        assert page.inner_text("#best [aria-current]") == "time"


def test_a_server_that_ends_is_said(opened: Any, tmp_path: Path) -> None:
    sample_archive(tmp_path, finished=False)
    with looking(opened) as page:
        with serving(tmp_path) as served:
            page.goto(served.url + "runs/r1")
            settled(page)
        page.locator("#live", has_text="the server does not answer").wait_for()


def test_ten_thousand_events_are_painted_within_a_second(opened: Any, tmp_path: Path) -> None:
    long_archive(tmp_path)
    with serving(tmp_path) as served, looking(opened) as page, Archive(tmp_path) as archive, Watch() as watch:
        assert archive.last_seq("long") == 9999
        paints = []
        for _ in range(3):  # the first is of an archive that the server has not read
            page.goto(served.url + "runs/long")
            paints.append(first_paint(page))
        settled(page)
        began = time.monotonic()
        archive.append("long", "interrupted", -1, {"reason": "a pause"})
        page.locator("#events", has_text="a pause").wait_for()
        delay = time.monotonic() - began
        assert page.locator("#best .mark").count() > 300
    print(f"first paint {paints} s, event to page {delay:.2f} s")
    assert max(paints) < 1.0 * watch.load and delay < WITHIN_S * watch.load
