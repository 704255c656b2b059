"""The offline auditors: labels by a differential check, not by claims; confusion matrices of known cases."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from test_screener import store

from hipwright.agents.auditors import (
    Auditor,
    Confusion,
    Variant,
    corpus_confusions,
    engine_variants,
    llm_variants,
    read_variants,
    variant_confusions,
)
from hipwright.api.audit import screener_calibration
from hipwright.archive import Archive
from hipwright.audit.cases import select
from hipwright.audit.differential import label
from hipwright.audit.verdicts import ObservedVerdict, judge_case
from hipwright.audit.verifiers import AuditSession, open_audit
from hipwright.cli.display.audit import print_screener
from hipwright.llm.call_log import MemoryCallLog
from hipwright.llm.client import Client
from hipwright.llm.cost.budget import Budget, SpendingLimits
from hipwright.llm.specs import parse_specs
from tests.cli.cli_tools import hipwright, one_object
from tests.llm.server import LocalProvider

RELU = next(case for case in select(("relu_signed",), form="program", kind="honest"))


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest) -> Iterator[AuditSession]:
    folder = Path(request.config.cache.mkdir("hipwright-builds"))  # type: ignore[union-attr]
    with open_audit(seed=20, cache_folder=folder) as opened:
        yield opened


def relu(before: str, after: str) -> str:
    assert before in RELU.text
    return RELU.text.replace(before, after)


def variant(text: str, claim: str = "broken: a test") -> Variant:
    return Variant(of=RELU.id, author="llm", claim=claim, text=text)


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("text", "truth", "why"),
    [
        (relu("if (i < n)", "if (n > i)"), "equivalent", "identical"),
        (relu("x[i] < 0.0f ?", "x[i] > 0.0f ?"), "wrong", "far"),
        (relu(": x[i];", ": x[i] * 1.00001f;"), "unclear", "no clear difference"),
        (relu("x[i] < 0.0f ?", "x[i] < 0.0f; ?"), "stillborn", "compile"),
        ("def forward(self, x):\n    return x\n", "stillborn", ""),
        (relu("torch.empty_like(x)", "torch.empty_like(x[:1])"), "wrong", ""),
    ],
)
def test_what_a_variant_is(session: AuditSession, text: str, truth: str, why: str) -> None:
    found = label(session.evaluator(RELU.task_path), RELU.text, text, trials=8)
    assert (found.truth, why in found.why) == (truth, True), found


def test_the_same_kernel_under_another_plan_is_not_equivalent(session: AuditSession) -> None:
    """By machine code alone the two would be equal."""
    returns = RELU.text.rindex("return")
    other = RELU.text[:returns] + "return x" + RELU.text[RELU.text.index("\n", returns) :]
    assert label(session.evaluator(RELU.task_path), RELU.text, other, trials=8).truth == "wrong"


# ---------------------------------------------------------------- variants


def test_the_engine_draws_the_same_from_a_seed() -> None:
    first = engine_variants(6, 4)
    assert first == engine_variants(6, 4) != engine_variants(6, 5) and len({one.of for one in first}) == 6
    assert all(one.claim.startswith(one.of.rsplit("/", 1)[1]) for one in first)


ANSWER = f"""Here they are.

**CLAIM: broken: the sign is turned**
```python
{relu("x[i] < 0.0f ?", "x[i] > 0.0f ?")}```

CLAIM: deceptive: it writes the same in another way
```python
{relu("if (i < n)", "if (n > i)")}```

```python
print("no claim stands before this one")
```
"""


def test_claims_and_programs_are_read_and_what_has_no_claim_is_left_out() -> None:
    found = read_variants(RELU.id, ANSWER)
    assert [one.claim for one in found] == [
        "broken: the sign is turned",
        "deceptive: it writes the same in another way",
    ]
    assert read_variants(RELU.id, "CLAIM: broken: nothing follows") == read_variants(RELU.id, "") == []


def test_a_models_variants_are_labelled_and_both_verifiers_scored(session: AuditSession) -> None:
    with LocalProvider(lambda messages, call: ANSWER) as provider:
        lineup = parse_specs([provider.spec()])
        with Client(MemoryCallLog(), Budget(SpendingLimits())) as client:
            made, failed = llm_variants(4, 1, client, lineup, ("relu_signed",))
        prompt = provider.requests[0].messages[0]["content"]
    assert not failed and len(made) == 2 and RELU.text.strip() in prompt and str(RELU.task_path) not in prompt
    scored = Auditor(session).score(made)
    assert [(one.truth, one.said) for one in scored] == [
        ("wrong", {"cpu full": "refused", "cpu fast": "refused"}),
        ("equivalent", {"cpu full": "accepted", "cpu fast": "accepted"}),
    ], "a variant that a model calls deceptive, and that is the same code, must pass"
    full, fast = variant_confusions(scored)
    assert (full.verifier, fast.verifier) == ("cpu full", "cpu fast") and not full.fooled
    assert (full.right_accepted, full.wrong_refused, full.unseen) == (1, 1, 0)


def test_a_provider_that_refuses_gives_no_variants_and_its_error() -> None:
    with LocalProvider(key="another") as provider, Client(MemoryCallLog(), Budget(SpendingLimits())) as client:
        made, failed = llm_variants(8, 1, client, parse_specs([provider.spec()]))
    assert made == [] and len(failed) == 2


# ---------------------------------------------------------------- matrices


def test_the_corpus_is_counted_by_verifier_and_lane() -> None:
    honest = next(case for case in select(form="program", kind="honest"))
    broken = next(case for case in select(form="program", kind="broken"))
    hostile = next(case for case in select(form="modelnew", kind="hostile"))
    right = ObservedVerdict(status="pass", coverage=1.0)
    cells = [
        (honest, right),
        (honest, ObservedVerdict(status="pass", coverage=0.0)),
        (honest, ObservedVerdict(status="wrong_value", fault="candidate")),
        (broken, right),
        (broken, ObservedVerdict(status="wrong_value", fault="candidate")),
        (broken, ObservedVerdict(status="pass", coverage=0.01)),
        (hostile, ObservedVerdict(not_run="only a GPU can see this")),
        (hostile, ObservedVerdict(status="unscorable", fault="service")),
    ]
    found = corpus_confusions(judge_case(case, "cpu full", one) for case, one in cells)
    assert found == [
        Confusion(
            verifier="cpu full", form="program", right_accepted=2, right_refused=1, wrong_accepted=1, wrong_refused=2
        ),
        Confusion(verifier="cpu full", form="modelnew", no_verdict=1, unseen=1),
    ]
    assert found[0].fooled and not found[1].fooled
    low, high = found[0].false_accepts
    assert low < 1 / 3 < high and found[1].false_accepts == (0.0, 1.0), "nothing is known of what was not seen"
    assert found[0].figures()["false_rejects"] == list(found[0].false_rejects)


# ---------------------------------------------------------------- the command


def test_the_screeners_calibration_is_that_of_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "none"))
    assert screener_calibration() == {} and not (tmp_path / "none").exists()
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path))
    with Archive(tmp_path) as archive:
        store(archive, [({"author": "engine", "passes": 0.9}, "pass", None)])
    found = screener_calibration()
    assert set(found) == {"engine"} and found["engine"]["events"]["passes"]["brier"] == pytest.approx(0.01)
    print_screener(console := Console(file=StringIO(), width=160), found)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "passes" in said and "90 %" in said and "0.010" in said


@pytest.mark.slow
def test_audit_scores_a_models_variants(tmp_path: Path) -> None:
    with LocalProvider(lambda messages, call: ANSWER) as provider:
        asked = ("--variants", 4, "--llm", provider.spec(), "--only", "relu_signed", "--seed", 2)
        done = hipwright(tmp_path / "home", "audit", *asked, "--json", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    printed = one_object(done.stdout)
    assert printed["truths"] == {"wrong": 1, "equivalent": 1} and (tmp_path / "out" / "calls.jsonl").is_file()
    assert [(row["verifier"], row["right_accepted"], row["wrong_refused"]) for row in printed["confusion"]] == [
        ("cpu full", 1, 1),
        ("cpu fast", 1, 1),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--llm", "ollama:x"),
        ("--variants", "2", "--max-usd", "1"),
        ("--variants", "2", "--target", "gfx942"),
        ("--variants", "2", "--only", "nobody"),
        ("--variants", "2", "--lane", "modelnew"),
    ],
)
def test_bad_options_are_bad_input(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert hipwright(tmp_path / "home", "audit", *arguments).returncode == 2
