"""The pages of `hipwright view`: what each shows, for text that is plain and text that is hostile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from hipwright.api.models import models_spent
from hipwright.archive import Archive, LogEntry
from hipwright.llm.archive_call_log import ArchiveCallLog
from hipwright.records import Expansion, Program, Run
from hipwright.view.app import view_app
from hipwright.view.reader import ArchiveReader
from tests.llm.calls.call_log_contract import answer, request, reserved
from tests.report.report_sample import HOSTILE
from tests.view.markup import check_markup
from tests.view.view_sample import program, sample_archive

PAGES = (
    "/",
    "/?q=rms",
    "/runs/r1",
    "/runs/r1?axis=time&order=fastest&status=pass&events=1000",
    "/runs/r1/programs/0",
    "/runs/r1/programs/6",
    "/runs/r1/programs/3",
    "/compare?a=r1&b=r1/5",
    "/compare?a=r1/3&b=r1/4",
)


@pytest.fixture(params=["", HOSTILE], ids=["plain", "hostile"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestClient]:
    sample_archive(tmp_path, request.param)
    reader = ArchiveReader(tmp_path)
    yield TestClient(view_app(reader), base_url="http://127.0.0.1:8420")
    reader.close()


@pytest.mark.parametrize("address", PAGES)
def test_a_page_has_no_script_style_or_address_but_the_servers_own(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 200
    check_markup(answer.text)


def test_the_policy_allows_no_inline_script_or_style(client: TestClient) -> None:
    for address in (*PAGES, "/static/view.js", "/nothing"):
        policy = client.get(address).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy


def test_the_list_shows_each_run_with_its_status_and_sparkline(client: TestClient) -> None:
    text = client.get("/").text
    assert 'href="/runs/r1"' in text and 'class="spark"' in text and ">passed<" in text and "12/16" in text


def test_a_program_shows_what_memory_its_call_takes(client: TestClient) -> None:
    page = client.get("/runs/r1/programs/6").text
    assert "12.5 MB" in page and "inputs, state, outputs and workspace of one call" in page


def test_a_run_shows_its_best_its_grid_and_its_events(client: TestClient) -> None:
    text = client.get("/runs/r1").text
    assert "50 µs" in text and "1.20×" in text, "60 at first, 50 at last"
    for part in ("best", "tree", "grid", "cost", "proposals", "events", "task"):
        assert f'id="{part}"' in text
    assert text.count('class="whisker"') == 9, "the measured programs have intervals"
    assert "over <a" in re.sub(r"\s+", " ", text) and "wrong_value" in text


def test_a_program_shows_operators_difference_resources_and_roofline(client: TestClient) -> None:
    text = client.get("/runs/r1/programs/6").text
    assert '<span class="chip">rms</span>' in text and '<span class="chip">silu</span>' in text
    assert "a block a row" in text
    lines = dict(re.findall(r'<span class="(add|del)"><span class="sign">[+-]</span>// version (\d)', text))
    assert lines == {"add": "6", "del": "4"}
    assert "Instinct MI300X" in text and "8 of 8" in text and 'class="roof"' in text
    assert "rms_swiglu" in text and "of the issue rate" in text


def test_a_refusal_is_shown_down_to_the_element(client: TestClient) -> None:
    text = client.get("/runs/r1/programs/3").text
    part = text[text.index('id="element"') : text.index('id="fused"')]
    assert "[3, 17]" in part and "1.25" in part and "-0.5" in part and "outliers" in part


def test_two_programs_are_compared(client: TestClient) -> None:
    text = client.get("/compare?a=r1/4&b=r1/6").text
    assert "B needs 0.964× the time of A (measured)." in text, "54 against 56 µs"
    assert "// version 4" in text and "// version 6" in text
    assert client.get("/compare").status_code == 200


@pytest.mark.parametrize(
    "address", ["/runs/none", "/runs/r1/programs/99", "/compare?a=r1/x&b=r1", "/compare?a=r1&b=r1/99", "/static/app.py"]
)
def test_what_does_not_exist_is_one_page_that_says_so(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 404 and "<h1>" in answer.text and "Traceback" not in answer.text


def test_what_models_cost_is_shown_beside_what_they_may(tmp_path: Path) -> None:
    limits = {"agents": {"llm": True, "usd": 2.5, "tokens": 40_000}}
    with Archive(tmp_path) as archive:
        archive.begin_run(Run(id="m", task="t", targets=("cpu",), budget=4, policy="islands", seed=1, settings=limits))
        log, asked = ArchiveCallLog(archive, "m"), [request(0), request(1), request(2)]
        reader = ArchiveReader(tmp_path)
        client = TestClient(view_app(reader), base_url="http://localhost")
        assert "0 calls, 0 tokens, $0.0000 of at most $2.5 and 40,000 tokens" in client.get("/runs/m").text
        for one in asked:
            log.reserve(reserved(one))
        log.settle(answer(asked[0]))
        log.settle(answer(asked[1]))
        text = client.get("/runs/m").text
        assert "2 calls, 20 tokens, $0.2500 of at most" in text and "translator" in text
        assert "1 attempts without an answer" in text and "call settled" in text
        assert reader.spent(reader.run("m")) == models_spent(archive, reader.run("m"))
        reader.close()


def test_damaged_rows_are_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    sample_archive(tmp_path)
    with Archive(tmp_path) as archive:
        db = archive.database.connection
        db.execute("DROP TRIGGER events_no_UPDATE")
        db.execute("UPDATE events SET data = '{' WHERE run = 'r1' AND kind = 'evaluated' AND number = 2")
    reader = ArchiveReader(tmp_path)
    client = TestClient(view_app(reader), base_url="http://localhost")
    text = client.get("/").text
    assert "r1, event" in text and "cannot be read" in text
    assert client.get("/runs/r1").status_code == client.get("/runs/r1/programs/2").status_code == 200
    reader.close()


def test_a_run_without_a_program_is_shown(tmp_path: Path) -> None:
    sample_archive(tmp_path, proposals=0, finished=False)
    reader = ArchiveReader(tmp_path)
    client = TestClient(view_app(reader), base_url="http://localhost")
    assert "interrupted" in client.get("/").text
    assert client.get("/runs/r1").status_code == 200
    assert "none is verified" in client.get("/compare?a=r1&b=r1").text
    assert program(1).key != program(2).key
    reader.close()


def test_a_text_of_megabytes_is_shown_in_part(tmp_path: Path) -> None:
    sample_archive(tmp_path, proposals=1, finished=False)
    long = Program(text="x = 1\n" * 120_000)
    expansion = Expansion(number=1, operator="mutate", parents=(program(0).key,))
    with Archive(tmp_path) as archive:
        proposed = {"expansion": expansion.to_dict(), "round": 1, "program": long.key}
        archive.append_all("r1", [LogEntry("proposed", 1, proposed)], records=[long])
    reader = ArchiveReader(tmp_path)
    text = TestClient(view_app(reader), base_url="http://localhost").get("/runs/r1/programs/1").text
    assert "The first 400,000 of" in text and "too long to be compared" in text and len(text) < 500_000
    reader.close()
