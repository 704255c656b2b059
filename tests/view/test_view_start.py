"""Starting searches from the browser: with the flag, from this server's own pages, and nothing but tasks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from hipwright.errors import BadInput
from hipwright.view.app import view_app
from hipwright.view.reader import ArchiveReader
from hipwright.view.serving import serving
from hipwright.view.starting import AT_ONCE, Starter
from tests.view.browser import browser, findings, looking, needs_browser
from tests.view.view_sample import sample_archive

TOKEN = "a token of the test"
OWN = {"origin": "http://127.0.0.1:8420"}


class FakeCommand:
    """In place of `ChildCommand.run`: keeps the words, and runs until it is let go."""

    def __init__(self) -> None:
        self.words: list[tuple[str, ...]] = []
        self.go = threading.Event()

    def __call__(self, child: Any, words: Any, home: Path, listener: Callable[..., None]) -> dict[str, Any]:
        self.words.append(tuple(words))
        listener("stage", {"text": "starting run r1"})
        while not self.go.wait(0.02) and not child._aborted:
            pass
        return {"run": "r1", "status": "pass"}


@pytest.fixture
def command() -> FakeCommand:
    return FakeCommand()


@pytest.fixture
def started(tmp_path: Path, command: FakeCommand) -> Iterator[tuple[TestClient, Starter]]:
    """A client that has the token, and the starter behind it; one task in the folder."""
    home, root = tmp_path / "home", tmp_path / "work"
    (root / "tasks").mkdir(parents=True)
    (root / "tasks" / "softmax.py").write_text("")
    (tmp_path / "outside.py").write_text("")
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    sample_archive(home, proposals=2)
    reader, starter = ArchiveReader(home), Starter(home, root, command)
    client = TestClient(view_app(reader, token=TOKEN, starter=starter), base_url="http://127.0.0.1:8420")
    client.cookies.set("hipwright_view", TOKEN.replace(" ", "%20"))
    client.headers["authorization"] = f"Bearer {TOKEN}"
    yield client, starter
    command.go.set()
    starter.close()
    reader.close()


def form(starter: Starter, **fields: str) -> dict[str, str]:
    return {"csrf": starter.secret, "task": "tasks/softmax.py", "targets": "cpu", "budget": "3", "seed": "7", **fields}


def wait(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_search_is_started_followed_and_stopped(
    started: tuple[TestClient, Starter], command: FakeCommand, tmp_path: Path
) -> None:
    client, starter = started
    answer = client.post("/start", data=form(starter), headers=OWN, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/start")
    wait(lambda: bool(command.words) and bool(starter.started[0].run))
    task = str(tmp_path / "work" / "tasks" / "softmax.py")
    assert command.words == [("optimize", task, "--budget", "3", "--seed", "7", "--target", "cpu")]
    page = client.get("/start").text
    assert "/runs/r1" in page and "running" in page and "/start/0/stop" in page
    assert client.post("/start/0/stop", data={"csrf": starter.secret}, headers=OWN).status_code == 200
    assert starter.started[0].state == "stopped"


def test_without_the_flag_there_is_no_such_page(tmp_path: Path) -> None:
    sample_archive(tmp_path, proposals=2)
    reader = ArchiveReader(tmp_path)
    client = TestClient(view_app(reader), base_url="http://127.0.0.1:8420")
    assert client.get("/start").status_code == 404 and 'href="/start"' not in client.get("/").text
    assert "This server only reads" in client.get("/").text
    assert client.post("/start", data={"csrf": ""}, headers=OWN).status_code == 405
    reader.close()


FORGED = [
    # headers, fields, status
    ({"origin": "http://evil.test"}, {}, 403),
    ({"origin": "null"}, {}, 403),
    ({}, {}, 403),
    ({**OWN, "sec-fetch-site": "cross-site"}, {}, 403),
    ({**OWN, "sec-fetch-site": "same-site"}, {}, 403),
    ({"origin": "http://localhost:8420"}, {}, 403),
    ({**OWN, "host": "evil.test:8420", "origin": "http://evil.test:8420"}, {}, 421),
    (OWN, {"csrf": ""}, 403),
    (OWN, {"csrf": "é"}, 403),
    (OWN, {"csrf": TOKEN}, 403),
    (OWN, {"task": "x" * 9000}, 413),
]


@pytest.mark.parametrize(("headers", "fields", "status"), FORGED)
def test_a_forged_form_starts_nothing(
    started: tuple[TestClient, Starter],
    command: FakeCommand,
    headers: dict[str, str],
    fields: dict[str, str],
    status: int,
) -> None:
    client, starter = started
    assert client.post("/start", data=form(starter, **fields), headers=headers).status_code == status
    assert command.words == [] and starter.started == []


def test_the_token_is_needed_too(started: tuple[TestClient, Starter], command: FakeCommand) -> None:
    client, starter = started
    client.cookies.clear()
    del client.headers["authorization"]
    assert client.post("/start", data=form(starter), headers=OWN).status_code == 401
    assert client.get("/start").status_code == 401 and command.words == []


WRONG = [
    {"task": "../outside.py"},
    {"task": "link.py"},
    {"task": "/etc/passwd"},
    {"task": ""},
    {"task": "--unsafe"},
    {"task": "tasks"},
    {"targets": "cpu --unsafe"},
    {"targets": "no-such-target"},
    {"budget": "0"},
    {"budget": "10001"},
    {"budget": "3 --unsafe"},
    {"budget": "٣"},
    {"seed": "-1"},
]


@pytest.mark.parametrize("fields", WRONG, ids=[str(one) for one in WRONG])
def test_what_a_form_may_not_ask(
    started: tuple[TestClient, Starter], command: FakeCommand, fields: dict[str, str]
) -> None:
    client, starter = started
    answer = client.post("/start", data=form(starter, **fields), headers=OWN)
    assert answer.status_code == 422 and 'role="alert"' in answer.text
    assert command.words == []


def test_further_fields_change_nothing(started: tuple[TestClient, Starter], command: FakeCommand) -> None:
    client, starter = started
    more = {"unsafe": "1", "llm": "openai:x@http://evil.test", "out": "/etc", "resume": "x"}
    client.post("/start", data=form(starter, **more), headers=OWN)
    wait(lambda: bool(command.words))
    assert len(command.words[0]) == 8 and "--unsafe" not in command.words[0]


def test_only_so_many_run_at_once(started: tuple[TestClient, Starter], command: FakeCommand) -> None:
    client, starter = started
    for _ in range(AT_ONCE):
        assert client.post("/start", data=form(starter), headers=OWN, follow_redirects=False).status_code == 303
    assert client.post("/start", data=form(starter), headers=OWN).status_code == 422
    command.go.set()
    wait(lambda: all(one.state == "ended" for one in starter.started))
    assert client.post("/start", data=form(starter), headers=OWN, follow_redirects=False).status_code == 303


def test_other_methods_and_addresses_stay_closed(started: tuple[TestClient, Starter]) -> None:
    client, starter = started
    for method, address in (("POST", "/"), ("POST", "/runs/r1"), ("PUT", "/start"), ("POST", "/start/x/stop")):
        assert client.request(method, address, data=form(starter), headers=OWN).status_code == 405
    assert client.post("/start/99/stop", data={"csrf": starter.secret}, headers=OWN).status_code == 404


def test_off_the_loopback_nothing_is_started(tmp_path: Path) -> None:
    sample_archive(tmp_path, proposals=2)
    with pytest.raises(BadInput, match="this machine alone"), serving(tmp_path, "0.0.0.0", start_below=tmp_path):
        pass
    with serving(tmp_path, start_below=tmp_path) as served:
        assert served.token, "other accounts of the machine reach the loopback"


@pytest.mark.slow
def test_a_real_search_ends_up_in_the_archive(tmp_path: Path) -> None:
    root = Path(__file__).parents[2] / "examples"
    sample_archive(tmp_path, proposals=2)
    starter = Starter(tmp_path, root)
    starter.start({"task": "bias_gelu.py", "targets": "cpu", "budget": "1"})
    deadline = time.monotonic() + 200
    while starter.started[0].state == "running" and time.monotonic() < deadline:
        time.sleep(0.2)
    found = starter.started[0]
    assert (found.state, found.says) == ("ended", "pass"), found
    reader = ArchiveReader(tmp_path)
    assert found.run in [run.id for run in reader.runs()]
    reader.close()


def in_a_browser(test: Callable[..., None]) -> Callable[..., None]:
    for mark in needs_browser:
        test = mark(test)
    return test


@in_a_browser
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (768, "light"), (1280, "light")])
def test_a_person_starts_and_stops_one(
    tmp_path: Path, command: FakeCommand, monkeypatch: pytest.MonkeyPatch, width: int, scheme: str
) -> None:
    (tmp_path / "softmax.py").write_text("")
    sample_archive(tmp_path / "home", proposals=2)
    monkeypatch.setattr("hipwright.view.serving.Starter", partial(Starter, run=command))
    with (
        serving(tmp_path / "home", start_below=tmp_path) as served,
        browser() as opened,
        looking(opened, width=width, scheme=scheme) as page,
    ):
        page.goto(served.url)
        page.get_by_role("link", name="Start").click()
        page.get_by_label("Task").fill("softmax.py")
        page.get_by_label("Targets").fill("cpu")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.get_by_role("button", name="Start").click()
        page.wait_for_selector("text=starting run r1")
        page.get_by_role("button", name="Stop").click()
        page.wait_for_selector("td:text-is('stopped')")
        assert [one for one in page.said if "ERR_ABORTED" not in one] == [], "streams of pages that were left end"
        assert len(command.words) == 1
        if scheme == "light":
            assert findings(page) == []
        if folder := os.environ.get("HIPWRIGHT_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/start_{width}_{scheme}.png", full_page=True)
