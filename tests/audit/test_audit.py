"""The corpus against both verifiers on the cpu target, and the command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace

from hipwright.audit import verifiers
from hipwright.audit.cases import CorpusCase, by_task, select
from hipwright.audit.confusion import ConfusionMatrix, confusion_matrices, run_corpus
from hipwright.audit.verdicts import JudgedCase
from hipwright.audit.verifiers import TargetVerifier, open_audit
from hipwright.evaluation import modelnew_stages
from hipwright.sandbox import Zygote
from hipwright.toolchain.cpu import compiler
from hipwright.verify.gpu.connection import MODELNEW_PRELOAD
from hipwright.verify.verification import Gate
from tests import warm
from tests.cli.cli_tools import hipwright, one_object

# up to a minute each with either gate: only the full gate runs them
SLOWEST = ("macro_bomb", "sleeps_for_ever", "floods_stdout", "exhausts_memory", "endless_plan", "power_in_the_plan")


# honest candidates need a tenth of these
CALL_S, COMPILE_S = 6.0, 12.0
USERS_LIMITS = verifiers.LIMITS


@pytest.fixture(autouse=True)
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops endless candidates sooner than for users."""
    monkeypatch.setattr(verifiers, "LIMITS", replace(verifiers.LIMITS, wall_s=CALL_S))
    monkeypatch.setattr(compiler, "_LIMITS", replace(compiler._LIMITS, wall_s=COMPILE_S))


def audited(gate: Gate, cache: Path, cases: Sequence[CorpusCase], *, shared: bool = False) -> ConfusionMatrix:
    """The confusion matrix. shared: all workers are forked from one zygote, which takes two seconds to start; else from
    one each. A case that wrongly ran out of its short time, as beside other load, is judged again with users' limits.
    """
    done = _judged(gate, cache, cases, shared)
    late = [one.case for one in done if one.observed.status == "timeout" and one.outcome != "right"]
    if late:
        with mock.patch.object(verifiers, "LIMITS", USERS_LIMITS):
            again = {one.case.id: one for one in _judged(gate, cache, late, shared)}
        done = [again.get(one.case.id, one) for one in done]
    return confusion_matrices(done)[f"cpu {gate}"]


def _judged(gate: Gate, cache: Path, cases: Sequence[CorpusCase], shared: bool) -> list[JudgedCase]:
    with (
        open_audit(seed=20, cache_folder=cache) as opened,
        Zygote(MODELNEW_PRELOAD, ro=(cache,), name="ModelNew worker") as zygote,
        mock.patch.object(modelnew_stages, "Zygote", lambda *_, **__: warm.SharedZygote(zygote))
        if shared
        else nullcontext(),
    ):
        return run_corpus(TargetVerifier(opened, gate), cases, done=lambda case: opened.close(case.task_path))


def half_of_corpus(gate: Gate, number: int, all_cases: bool) -> list[CorpusCase]:
    """Half of the cases, so that two processors share the work; for the fast gate a sixth of them, or all.

    The cases of a task stay together, since opening a task takes seconds; those of a task with half of all cases
    alternate.
    """
    halves: tuple[list[CorpusCase], list[CorpusCase]] = ([], [])
    for members in sorted(by_task(select(())).values(), key=len, reverse=True):
        if len(members) > 50:
            for half, its in zip(halves, (members[::2], members[1::2]), strict=True):
                half.extend(its)
        else:
            min(halves, key=len).extend(members)
    cases = halves[number]
    if gate == "fast":
        cases = [case for case in cases if case.name not in SLOWEST][:: 1 if all_cases else 6]
    return cases


@pytest.fixture
def cache(request: pytest.FixtureRequest) -> Path:
    return Path(request.config.cache.mkdir("hipwright-builds"))  # type: ignore[union-attr]


def test_the_halves_cover_the_corpus() -> None:
    everything = {case.id for case in select(())}
    assert {case.id for number in (0, 1) for case in half_of_corpus("full", number, all_cases=False)} == everything
    fast = {case.id for number in (0, 1) for case in half_of_corpus("fast", number, all_cases=True)}
    assert {Path(left).name for left in everything - fast} == set(SLOWEST)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("gate", ["full", "fast"])
def test_no_candidate_deceives_the_verifier(
    gate: Gate, number: int, cache: Path, request: pytest.FixtureRequest
) -> None:
    """The whole corpus with the full gate and shared processes; with the fast gate every third candidate, or all, in
    processes of their own as for users.
    """
    cases = half_of_corpus(gate, number, all_cases=request.config.getoption("--all"))
    found = audited(gate, cache, cases, shared=gate == "full")
    said = [f"{j.outcome}: {j.case.id}: {j.why}" for j in found.unexpected()]
    assert (found.accepted, found.rejected, found.void) == (0, 0, 0), said
    if gate == "full":
        assert not said, "every candidate is stopped by an expected check"
    ran = sum(sum(counts.values()) - counts["not run"] for counts in found.counts.values())
    assert ran >= 0.9 * len(cases)


def test_a_few_candidates(cache: Path) -> None:
    names = ("relu_signed", "identity_relu", "cache_by_fingerprint", "fingerprint_in_prepared", "relu_inline")
    found = audited("full", cache, select(names))
    assert not found.unexpected() and sum(found.counts["honest"].values()) == 2


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    some = [word for name in ("identity*", "relu_*", "side_stream") for word in ("--only", name)]
    done = hipwright(tmp_path / "a", "audit", *some, "--gate", "full", "--out", tmp_path / "o", "--json")
    assert done.returncode == 0, done.stderr
    told = one_object(done.stdout)
    assert told == json.loads((tmp_path / "o" / "audit.json").read_text())
    (one,) = told["verifiers"]
    assert one["verifier"] == "cpu full" and one["accepted"] == one["rejected"] == 0
    assert one["counts"]["hostile"]["right"] >= 1 and one["counts"]["hostile"]["not run"] >= 1


@pytest.mark.parametrize("bad", [("--gate", "half"), ("--lane", "x"), ("--target", "gfx942"), ("--only", "nobody")])
def test_bad_options_are_bad_input(tmp_path: Path, bad: tuple[str, str]) -> None:
    assert hipwright(tmp_path / "a", "audit", *bad).returncode == 2
