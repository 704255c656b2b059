"""The corpus against both verifiers on the cpu target, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hipwright.audit.bench import Gate, TargetVerifier, open_bench
from hipwright.audit.cases import select
from hipwright.audit.run import Matrix, matrix, run
from tests.cli.cli_tools import hipwright, one_object

# up to a minute each, whatever the gate: the full one alone meets them
SLOWEST = ("macro_bomb", "sleeps_for_ever", "floods_stdout", "exhausts_memory", "endless_plan", "power_in_the_plan")


def audited(gate: Gate, cache: Path, patterns: tuple[str, ...] = (), step: int = 1) -> Matrix:
    cases = [c for c in select(patterns) if gate == "full" or c.name not in SLOWEST][::step]
    with open_bench("cpu", seed=20, cache_folder=cache) as bench:
        done = run(TargetVerifier(bench, gate), cases, done=lambda case: bench.close(case.task_path))
    return matrix(done)[f"cpu {gate}"]


@pytest.fixture
def cache(request: pytest.FixtureRequest) -> Path:
    return Path(request.config.cache.mkdir("hipwright-builds"))  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("gate", ["full", "fast"])
def test_nobody_fools_the_verifier(gate: Gate, cache: Path, request: pytest.FixtureRequest) -> None:
    """The whole corpus by the full gate; by the fast one every third candidate, or all."""
    step = 1 if gate == "full" or request.config.getoption("--all") else 3
    found = audited(gate, cache, step=step)
    said = [f"{j.outcome}: {j.case.id}: {j.why}" for j in found.but_right()]
    assert (found.accepted, found.rejected, found.void) == (0, 0, 0), said
    if gate == "full":
        assert not said, "every candidate is stopped by the check that is to stop it"
    ran = sum(sum(counts.values()) - counts["not run"] for counts in found.counts.values())
    assert ran >= 260 // step


def test_a_handful_is_quick(cache: Path) -> None:
    names = ("relu_signed", "identity_relu", "cache_by_fingerprint", "fingerprint_in_prepared", "relu_inline")
    found = audited("full", cache, names)
    assert not found.but_right() and sum(found.counts["honest"].values()) == 2


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    done = hipwright(
        tmp_path / "a",
        "audit",
        "--only",
        "identity*",
        "--only",
        "relu_*",
        "--only",
        "side_stream",
        "--gate",
        "full",
        "--out",
        tmp_path / "o",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    told = one_object(done.stdout)
    assert told == json.loads((tmp_path / "o" / "audit.json").read_text())
    (one,) = told["verifiers"]
    assert one["verifier"] == "cpu full" and one["accepted"] == one["rejected"] == 0
    assert one["counts"]["hostile"]["right"] >= 1 and one["counts"]["hostile"]["not run"] >= 1


@pytest.mark.parametrize("bad", [("--gate", "half"), ("--lane", "x"), ("--target", "gfx942"), ("--only", "nobody")])
def test_bad_options_are_bad_input(tmp_path: Path, bad: tuple[str, str]) -> None:
    assert hipwright(tmp_path / "a", "audit", *bad).returncode == 2
