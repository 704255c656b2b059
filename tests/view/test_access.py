"""Who may read: this machine alone, or whoever has the token; and nobody may write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from hipwright.view.access import COOKIE
from hipwright.view.app import view_app
from hipwright.view.reader import ArchiveReader
from tests.view.view_sample import sample_archive

TOKEN = "a token of the test"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[ArchiveReader]:
    sample_archive(tmp_path, proposals=2)
    found = ArchiveReader(tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("host", ["127.0.0.1:8420", "localhost", "LOCALHOST:1", "[::1]:8420", "[::1]"])
def test_this_machine_is_let_in(reader: ArchiveReader, host: str) -> None:
    client = TestClient(view_app(reader))
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.test", "evil.test:8420", "127.0.0.1.evil.test", "", "localhost.evil.test:80"])
def test_another_name_for_this_machine_is_not(reader: ArchiveReader, host: str) -> None:
    client = TestClient(view_app(reader))
    for address in ("/", "/runs/r1", "/runs/r1/events", "/static/view.js"):
        answer = client.get(address, headers={"host": host})
        assert answer.status_code == 421 and "rms" not in answer.text


def test_with_a_token_nothing_is_shown_without_it(reader: ArchiveReader) -> None:
    client = TestClient(view_app(reader, token=TOKEN), base_url="http://10.0.0.5:8420")
    for address in ("/", "/runs/r1", "/?token=", "/?token=wrong", "/runs/r1/events?token=wrong"):
        assert client.get(address, follow_redirects=False).status_code == 401
    assert client.get("/", headers={"authorization": "Bearer é".encode()}).status_code == 401
    assert client.get("/", headers={"cookie": f"{COOKIE}=wrong"}).status_code == 401
    assert client.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_token_of_an_address_becomes_a_cookie(reader: ArchiveReader) -> None:
    client = TestClient(view_app(reader, token=TOKEN), base_url="http://10.0.0.5:8420")
    answer = client.get("/runs/r1", params={"axis": "time", "token": TOKEN}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs/r1?axis=time")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert client.get("/").status_code == 200, "the cookie is enough"


def test_the_redirect_stays_on_this_server(reader: ArchiveReader) -> None:
    client = TestClient(view_app(reader, token=TOKEN), base_url="http://10.0.0.5:8420")
    answer = client.get("http://10.0.0.5:8420//evil.test/", params={"token": TOKEN}, follow_redirects=False)
    assert answer.headers["location"] == "/evil.test/"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(reader: ArchiveReader, method: str) -> None:
    client = TestClient(view_app(reader), base_url="http://127.0.0.1")
    assert client.request(method, "/runs/r1").status_code == 405
    assert client.request("HEAD", "/").status_code == 200


def test_a_page_that_fails_says_so_in_a_line(reader: ArchiveReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "runs", lambda: 1 // 0)
    answer = TestClient(view_app(reader), base_url="http://localhost").get("/")
    assert answer.status_code == 500 and "ZeroDivisionError" in answer.text and answer.text.count("\n") == 1
    assert "default-src 'none'" in answer.headers["content-security-policy"]
