"""Benchmarks, audits and trainings: found below a folder, shown, and compared two of a kind."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from hipwright.errors import BadInput
from hipwright.view.app import view_app
from hipwright.view.audit_results import facts
from hipwright.view.bench_results import row_pair
from hipwright.view.reader import ArchiveReader
from hipwright.view.results import ResultFolders
from tests.report.report_sample import HOSTILE
from tests.view.markup import check_markup
from tests.view.results_sample import rows_of, sample_results, write_audit, write_bench
from tests.view.view_sample import sample_archive


def client_of(home: Path, root: Path) -> TestClient:
    sample_archive(home, proposals=1)
    return TestClient(view_app(ArchiveReader(home), ResultFolders([root])), base_url="http://localhost")


@pytest.fixture(scope="module", params=["", HOSTILE], ids=["plain", "hostile"])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    root = sample_results(tmp_path_factory.mktemp("results"), request.param)
    yield client_of(tmp_path_factory.mktemp("home"), root)


def keys(client: TestClient) -> dict[str, str]:
    """{name: key} of the listed folders."""
    found = re.findall(r'href="/results/(\w+)">[^<]*?([\w-]+)</a>', client.get("/results").text)
    return {name: key for key, name in found}


def test_each_is_listed_and_shown_without_a_script_or_style(sample: TestClient) -> None:
    listed = keys(sample)
    assert set(listed) == {f"{kind}-{side}" for kind in ("bench", "audit", "train") for side in "ab"}
    for key in listed.values():
        answer = sample.get(f"/results/{key}")
        assert answer.status_code == 200
        check_markup(answer.text)
    check_markup(sample.get("/results").text)


def test_a_benchmark_has_its_tables_and_plots(sample: TestClient) -> None:
    text = sample.get(f"/results/{keys(sample)['bench-a']}").text
    assert "complete" in text and text.count('class="barmark') >= 8 and 'class="curve first"' in text
    assert "wrong_value" in text and "says nothing of an AMD GPU" in text


def test_benchmarks_are_compared_by_task(sample: TestClient) -> None:
    found = keys(sample)
    text = sample.get("/results/compare", params={"a": found["bench-a"], "b": found["bench-b"]}).text
    check_markup(text)
    assert "2 of 5 differ" in text, "one is faster, one fails"
    assert "2.333×" in text and text.index("2.333×") < text.index("1.000×")


def test_audits_are_compared_by_case(sample: TestClient) -> None:
    found = keys(sample)
    text = sample.get("/results/compare", params={"a": found["audit-a"], "b": found["audit-b"]}).text
    check_markup(text)
    part = text[text.index('id="changed"') :]
    assert "accepted: pass" in part and "right: pass" in part and part.count("<tr>") == 2


def test_trainings_are_drawn_on_the_same_charts(sample: TestClient) -> None:
    found = keys(sample)
    text = sample.get("/results/compare", params={"a": found["train-a"], "b": found["train-b"]}).text
    check_markup(text)
    assert "A grpo" in text and "B grpo" in text and "Their speeds are of different clocks" not in text
    one = sample.get(f"/results/{found['train-a']}").text
    assert one.count('<path class="line c') < text.count('<path class="line c')


def test_two_of_different_kinds_are_not_compared(sample: TestClient) -> None:
    found = keys(sample)
    answer = sample.get("/results/compare", params={"a": found["bench-a"], "b": found["audit-b"]})
    assert answer.status_code == 404 and "cannot be compared" in answer.text
    for address in ("/results/none", "/results/compare", "/results/..%2f..%2fetc", "/results/none/events"):
        assert sample.get(address).status_code == 404


def test_a_benchmark_is_shown_while_it_runs(tmp_path: Path) -> None:
    write_bench(tmp_path / "r" / "now", [1.5, None], finished=False)
    client, folders = client_of(tmp_path / "home", tmp_path / "r"), ResultFolders([tmp_path / "r"])
    (one,) = folders.all()
    before = folders.state(one.key)
    assert "2 of 2 rows" in client.get(f"/results/{one.key}").text
    with (one.path / "rows.jsonl").open("a") as stream:
        stream.write("\n" + rows_of([1.0, 1.0, 1.2])[2].to_json() + "\n")
    os.utime(one.path / "rows.jsonl", (before + 1, before + 1))
    assert folders.state(one.key) > before
    assert "3 of 3 rows" in client.get(f"/results/{one.key}").text


@pytest.mark.parametrize("text", ["{", "[]", '{"rows": 5}', '{"rows": [{"key": 1}]}', "[" * 100_000])
def test_what_cannot_be_read_is_said_in_a_line(tmp_path: Path, text: str) -> None:
    for name, file in (("b", "rows.jsonl"), ("a", "audit.json"), ("t", "metrics.jsonl")):
        (tmp_path / "r" / name).mkdir(parents=True)
        (tmp_path / "r" / name / file).write_text("" if name == "b" else text)
    (tmp_path / "r" / "b" / "result.json").write_text(text)
    client = client_of(tmp_path / "home", tmp_path / "r")
    for name, key in keys(client).items():
        answer = client.get(f"/results/{key}")
        assert answer.status_code in (200, 404), name
        assert "Traceback" not in answer.text and "<h1>" in answer.text


def test_folders_are_found_below_but_not_through_links(tmp_path: Path) -> None:
    write_audit(tmp_path / "r" / "deep" / "er" / "one", {})
    write_audit(tmp_path / "r" / ".hidden" / "two", {})
    write_audit(tmp_path / "elsewhere", {})
    (tmp_path / "r" / "link").symlink_to(tmp_path / "elsewhere")
    assert [one.name for one in ResultFolders([tmp_path / "r"]).all()] == ["er/one"]
    with pytest.raises(BadInput, match="no such folder"):
        ResultFolders([tmp_path / "nowhere"])


def test_a_faster_row_is_sure_only_beyond_both_intervals() -> None:
    slow, near, fast = rows_of([1.0, 1.001, 2.0])
    assert row_pair(slow, fast).sure and row_pair(slow, fast).changed
    assert not row_pair(slow, near).changed and row_pair(slow, None).changed


def test_figures_are_named_by_their_path() -> None:
    found = {"a_b": {"c": 1.5, "d": [1, 2]}, "verifiers": [{"verifier": "v", "counts": {"x": 3}}], "list": [{"q": 1}]}
    assert facts(json.loads(json.dumps(found))) == {"a b c": "1.5", "a b d": "1, 2", "verifiers v counts x": "3"}
