"""The canonical export: byte-identical for any clock, machine, cache state and order of completion."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from archive_contract import a_run, evaluation, program, proposed
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.archive import Archive, Confirmed, Evaluated, Finished, LogEntry, export
from hipwright.archive.export import STRIPPED, strip
from hipwright.records import Build, Decision, Run, TargetResult, Timing, Verdict, Versus

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(sorted(STRIPPED)) | st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {k for item in value.values() for k in keys(item)}
    return {k for item in value for k in keys(item)} if isinstance(value, list) else set()


@given(JSON)
def test_stripping_removes_every_listed_field_and_no_other(value: Any) -> None:
    stripped = strip(value)
    assert keys(stripped) == kept_keys(value)
    assert strip(stripped) == stripped


def kept_keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        mine = {k: v for k, v in value.items() if k not in STRIPPED}
        return set(mine) | {k for item in mine.values() for k in kept_keys(item)}
    return {k for item in value for k in kept_keys(item)} if isinstance(value, list) else set()


@given(JSON, st.data())
@settings(max_examples=50)
def test_what_a_machine_writes_never_shows(value: Any, data: st.DataObject) -> None:
    """Documents that differ only in the listed fields strip to the same bytes."""

    def other(item: Any) -> Any:
        if isinstance(item, dict):
            return {k: data.draw(JSON) if k in STRIPPED else other(v) for k, v in item.items()}
        return [other(i) for i in item] if isinstance(item, list) else item

    assert json.dumps(strip(other(value))) == json.dumps(strip(value))


def test_paths_and_addresses_are_masked_and_code_is_not() -> None:
    text = "File /tmp/tmpab12/host.py: fault at 0x7f00deadbeef in /home/me/task.py:12"
    assert strip(text) == "File <path>: fault at <address> in <path>:12"
    for harmless in ("a / b", "1/2", "x/y/z", "GB/s", "mask 0xff", "https://docs.x/y"):
        assert strip(harmless) == harmless


def fill(archive: Archive, name: str, rng: random.Random, *, reverse: bool = False, junk: bool = False) -> None:
    """One run of three proposals, with all fields that may differ between machines."""

    def judged(n: int) -> LogEntry:
        verdict = Verdict(status="pass", evidence={"pid": rng.random(), "where": f"/tmp/x{rng.random()}/y.py"})
        build = Build(target="gfx942", ok=True, blob=str(rng.random()), log=str(rng.random()), seconds=rng.random())
        eager = Versus(
            baseline="eager", speedup=1.0, interval=(0.9, 1.1), samples_ms=(rng.random(),), baseline_ms=(1.0,), pairs=1
        )
        timing = Timing(device="d", architecture="a", median_ms=rng.random(), versus={"eager": eager})
        result = TargetResult(target="gfx942", build=build, verdict=verdict, timing=timing)
        plain = evaluation(n, targets={"gfx942": result}, seconds=rng.random(), environment=str(rng.random()))
        cached = rng.random() < 0.5
        return LogEntry(
            "evaluated", n, Evaluated(evaluation=plain, cached=cached, attempts=rng.randint(1, 3)).to_dict()
        )

    archive.begin_run(a_run(name))
    if junk:
        archive.append(name, "resumed")
    proposals = [LogEntry("proposed", n, proposed(n).to_dict()) for n in range(3)]
    archive.append_all(name, proposals, [program(n) for n in range(3)])
    for n in (2, 0, 1) if reverse else (0, 1, 2):
        archive.append_all(name, [judged(n)])
        if junk:
            archive.append(name, "interrupted")
            archive.append(name, "resumed")
    for n in range(3):
        archive.append(
            name, "decided", n, Decision(number=n, program=program(n).key, kept=n == 2, best=n == 2).to_dict()
        )
    again = Confirmed(program=program(2).key, passed=True, evaluation=evaluation(2, message=str(rng.random())))
    archive.append(name, "confirmed", 2, again.to_dict())
    archive.append(name, "finished", -1, Finished(reason="budget", best=program(2).key, number=2, score=8.0).to_dict())


def test_same_outcome_gives_the_same_bytes(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        fill(archive, "a", random.Random(1))
        fill(archive, "b", random.Random(2), reverse=True, junk=True)
        first, second = (export(archive, name, canonical=True) for name in "ab")
        assert first == second
        assert export(archive, "a") != export(archive, "b")
    lines = [json.loads(line) for line in first.splitlines()]
    assert [(line["kind"], line.get("number")) for line in lines] == [
        ("run_started", None),
        *((kind, n) for n in range(3) for kind in ("proposed", "evaluated", "decided")),
        ("confirmed", 2),
        ("finished", 2),
    ]
    assert lines[1]["program"] == {"key": program(0).key, **program(0).to_dict()}
    assert keys(lines).isdisjoint(STRIPPED)
    assert lines[2]["evaluation"]["score"] == 10.0  # an estimate is part of the outcome


def test_measured_scores_are_a_stopwatchs(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        archive.begin_run(a_run())
        archive.append_all("r1", [LogEntry("proposed", 0, proposed(0).to_dict())], [program(0)])
        measured = Evaluated(evaluation=evaluation(0, score_kind="measured"))
        archive.append("r1", "evaluated", 0, measured.to_dict())
        lines = export(archive, "latest", canonical=True).splitlines()
    assert json.loads(lines[2])["evaluation"]["score"] is None


def test_full_export_has_every_event(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        fill(archive, "a", random.Random(1), junk=True)
        lines = [json.loads(line) for line in export(archive, "a").splitlines()]
        events = archive.events("a")
    assert [line["seq"] for line in lines] == [e.seq for e in events]
    assert [line["data"] for line in lines] == [e.data for e in events]
    assert lines[2]["program"] == program(0).to_dict()


def test_full_export_carries_the_programs_that_a_run_was_shown(tmp_path: Path) -> None:
    settings = {"agents": {"known": [program(1).key], "neighbours": [program(0).key, program(1).key]}}
    begun = Run(id="b", task="t", targets=("cpu",), budget=1, policy="islands", seed=0, settings=settings)
    with Archive(tmp_path) as archive:
        archive.begin_run(begun, {}, [program(0), program(1)])
        first = json.loads(export(archive, "b").splitlines()[0])
    assert sorted(p["text"] for p in first["programs"]) == sorted([program(0).text, program(1).text])
