"""`hipwright model`: wrong input is one line, a profile is one object, and the outcome a table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_tools import EXAMPLES, hipwright, one_object

from hipwright.cli.output import CommandOutput
from hipwright.cli.whole import progress

ENCODER = EXAMPLES / "models" / "encoder.py"


@pytest.mark.parametrize(
    ("given", "says"),
    [("nothing", "is no model"), ("no.such:factory", "there is no module no"), ("missing.py", "no such model file")],
)
def test_what_is_no_model_is_one_line(tmp_path: Path, given: str, says: str) -> None:
    done = hipwright(tmp_path / "home", "model", given, "--target", "cpu", "--json")
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(lines) == 1 and says in lines[0]
    assert one_object(done.stdout)["exit_code"] == 2


@pytest.mark.slow
def test_a_profile_is_one_object(tmp_path: Path) -> None:
    done = hipwright(tmp_path / "home", "model", ENCODER, "--only-profile", "--json")
    found = one_object(done.stdout)
    assert done.returncode == 0 and found["times"] == "estimate" and found["class"] == "Model"
    first = found["regions"][0]
    assert first["paths"] == ["blocks.0", "blocks.1", "blocks.2"] and first["model_speedup_at_most"] > 1.5
    shares = [one["share"] for one in (*found["regions"], *found["stays"])]
    assert sum(shares) == pytest.approx(1.0)


@pytest.mark.slow
def test_the_outcome_is_a_table_with_what_stays_and_why(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    args = ("model", ENCODER, "--budget", 1, "--regions", 1, "--target", "cpu", "--out", folder)
    done = hipwright(tmp_path / "home", *args)
    assert done.returncode == 0, done.stderr
    assert (
        "blocks.0 … blocks.2" in done.stdout and "3 parts run 1 verified program; worst output on 2 sets" in done.stdout
    )
    assert "stays: the model (Model)" in done.stdout and "not measured: no GPU was used" in done.stdout
    assert f"written: {folder / 'model.html'}" in done.stdout.replace("\n", "")
    assert {path.name for path in folder.iterdir()} == {"00_Block", "model.json", "model.html"}


def test_lines_of_regions_that_are_searched_beside_each_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    told = progress.ModelProgress(CommandOutput())
    told("stage", {"text": "profiling Net"})
    for number, budget in ((0, 5), (1, 3)):
        told("region", {"number": number, "paths": [f"layer{number}"], "budget": budget, "region": number})
    told("evaluated", {"evaluations": 2, "status": "pass", "region": 0})
    told("decided", {"best": True, "number": 1, "score": 12.0, "score_kind": "measured", "region": 1})
    told("region done", {"number": 1, "seconds": 3.25, "kept": False, "why": "it is slower", "region": 1})
    told("region done", {"number": 0, "seconds": 4.0, "kept": True, "why": "", "region": 0})
    told("stage", {"text": "replacing 1 region"})
    lines = [re.sub(r"^\[ *[0-9.]+s", "[", line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "[] profiling Net",
        "[ region 1] layer0: a search of 5 evaluations",
        "[ region 2] layer1: a search of 3 evaluations",
        "[ region 1] 2/5 evaluations, pass",
        "[ region 2] new best #1: 12.00 µs (MEASURED)",
        "[ region 2] left after 3.2 s: it is slower",
        "[ region 1] found after 4.0 s",
        "[] replacing 1 region",
    ]
