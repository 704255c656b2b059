"""Redaction: planted secrets vanish, ordinary code stays, hostile texts take linear time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hipwright
from hipwright.errors import ProviderError
from hipwright.llm import secrets
from hipwright.llm.call_log import RefusedCall
from hipwright.llm.file_call_log import FileCallLog
from hipwright.llm.records import Message, ModelAnswer, Request, Reserved
from hipwright.llm.secrets import MARK, known_secrets, redact, redact_plain, redact_record, register

PEM = "-----BEGIN EC PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\nQyNTUxOQAAACDqWmXo1\n-----END EC PRIVATE KEY-----"

PLANTED = {
    "OPENAI_API_KEY": "plain-value-of-openai",
    "ANTHROPIC_API_KEY": "sk-ant-api03-AbCdEf0123456789_-xyz",
    "GOOGLE_API_KEY": "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "AWS_BEARER_TOKEN_BEDROCK": "bedrock bearer with blanks",
    "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwx",
    "GITHUB_PAT": "correct-horse-battery-staple",
    "DB_PASSWORD": r"(.*)+[a-z]{2}\d$^|?pass",
    "my_secret": "unicode-passwörd-ключ",
    "SIGNING_KEY": "first line of it\nsecond line, longer\nthird line of it",
    "DEPLOY_KEY": PEM,
    "VAULT_PASSPHRASE": "'quoted' \"twice\" \\ back",
    "APIKEY": "trailing-newline-value\n",
    "AUTH": "Zm9vYmFyOmJhemJhemJheg==",
    "SENTRY_DSN": "https://0123456789abcdef@sentry.example.com/1",
    "HTTPS_PROXY": "http://user:pr0xy-p4ss@proxy.example.com:3128",
    "DATABASE_URL": "postgres://me:p%40ss-w0rd@db.example.com/x",
}
SHAPED = (  # known by their shape alone
    "sk-proj-Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_11ABCDEFG0abcdefghijkl_MNOPQRSTUVWXYZ",
    "gsk_abcdefghij0123456789KLMNOPQRST",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
)
REGISTERED = "key-inside-a-base-url"

NEEDLES = (
    *(value.strip() for name, value in PLANTED.items() if name not in ("HTTPS_PROXY", "DATABASE_URL")),
    *("pr0xy-p4ss", "p@ss-w0rd", "b3BlbnNzaC1rZXktdjEAAAAA", "QyNTUxOQAAACDqWmXo1", "second line, longer"),
    *SHAPED,
    REGISTERED,
)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(secrets, "_registered", set())
    register(REGISTERED)


def settings_in(needle: str) -> list[str]:
    """The secret in all forms that prompts, answers and error texts may contain."""
    return [
        needle,
        f"the key is {needle}, and so on",
        f"x = os.environ.get('KEY', '{needle}')\n",
        f"{needle}{needle}",
        f"\n{needle}\n",
        json.dumps({"Authorization": f"Bearer {needle}", "body": f"line\n{needle}"}),
        repr({"headers": [("x-api-key", needle)]}),
        f"ConnectError: https://host.example.com/v1/models?key={quote(needle, safe='')}&x=1",
        f"http://user:{quote(needle, safe='')}@host.example.com:8000/v1",
        f"```\n{needle}\n```",
        f"PUT files/{quote(needle, safe='')}/x",
        f"«{needle}»",
    ]


def shows(text: str, needle: str) -> bool:
    spellings = {needle, json.dumps(needle)[1:-1], repr(needle)[1:-1], quote(needle, safe=""), json.dumps(text)}
    return any(spelling in text for spelling in spellings if spelling != json.dumps(text))


@pytest.mark.parametrize("needle", NEEDLES, ids=range(len(NEEDLES)))
def test_a_planted_secret_appears_nowhere(planted: None, needle: str) -> None:
    assert len(PLANTED) + len(SHAPED) + 1 >= 20
    for text in settings_in(needle):
        clean = redact(text)
        assert shows(text, needle) and not shows(clean, needle), (text, clean)
        assert MARK in clean and redact(clean) == clean


def test_twenty_secrets_appear_nowhere_in_a_log_of_calls(planted: None, tmp_path: Path) -> None:
    """Requests, answers and errors, redacted as by the client, in the bytes of the file."""
    text = "\n".join(setting for needle in NEEDLES for setting in settings_in(needle))
    request = redact_record(Request(role="translator", model="m", messages=(Message(role="user", text=text),)))
    answer = redact_record(ModelAnswer(request=request.key, text=text, model=NEEDLES[0]))
    error = ProviderError(redact(text), hint=redact(text))
    with FileCallLog(tmp_path / "calls.jsonl") as log:
        log.reserve(Reserved(request=request, cost_usd=0.0, tokens=1))
        log.settle(answer)
        log.refuse(RefusedCall.of(request, error))
        assert log.find(request.key) == answer
    raw = (tmp_path / "calls.jsonl").read_text()
    assert raw.count(MARK) > 3 * len(NEEDLES)
    for needle in NEEDLES:
        assert not shows(raw, needle), needle
        assert not any(line in raw for line in needle.splitlines() if "-----" not in line)


@given(st.lists(st.sampled_from([*NEEDLES, MARK, "<", "secret>", " ", "Bearer ", "://u:", "@", "sk-", "x", "a1"])))
def test_redacting_twice_changes_nothing(parts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PLANTED.items():
            patch.setenv(name, value)
        patch.setenv("ODD_PASSWORD", "<secret>")  # the mark itself is no secret
        patch.setenv("ODDER_PASSWORD", "cret><sec")
        once = redact("".join(parts))
        assert redact(once) == once


@given(st.text(max_size=200))
def test_a_text_without_secrets_is_the_same_text(text: str) -> None:
    assert redact(text) == text or "://" in text


def test_what_is_known_is_read_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert redact("rotating-value-1") == "rotating-value-1"
    monkeypatch.setenv("SOME_TOKEN", "rotating-value-1")
    assert redact("a rotating-value-1 b") == f"a {MARK} b" and "rotating-value-1" in known_secrets()
    monkeypatch.delenv("SOME_TOKEN")
    assert redact("rotating-value-1") == "rotating-value-1"


def test_names_that_hold_no_secret_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = {
        "PWD": "/work/some/project",
        "SSH_AUTH_SOCK": "/tmp/ssh-abc/agent.1",
        "TOKENIZERS_PARALLELISM": "disabled",
        "KEYBOARD": "german-layout",
        "GOOGLE_CREDENTIALS_FILE": "/home/me/credentials.json",
        "AUTHOR": "someone famous",
        "PATH": "/usr/local/bin:/usr/bin",
        "SHORT_KEY": "abc1234",  # shorter than 8: it would be cut out of ordinary text
        "PROXY": "http://proxy.example.com:3128",
    }
    for name, value in harmless.items():
        monkeypatch.setenv(name, value)
    for value in harmless.values():
        assert redact(f"see {value}.") == f"see {value}."


def test_a_short_registered_secret_is_cut_as_a_whole_word_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_registered", set())
    register("test")
    register("abc")  # too short to be told from text
    assert redact("http://u:test@h latest tests test") == f"http://u:{MARK}@h latest tests {MARK}"
    assert redact("abc") == "abc"


def test_a_longer_secret_is_cut_before_one_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "inner-part")
    monkeypatch.setenv("B_KEY", "outer-inner-part-outer")
    assert redact("[outer-inner-part-outer] [inner-part]") == f"[{MARK}] [{MARK}]"


def test_what_says_whose_secret_it_was_stays() -> None:
    assert redact("Authorization: Bearer abcdef0123456789") == f"Authorization: Bearer {MARK}"
    assert redact("Authorization: Basic dXNlcjpwYXNzd29yZDE=") == f"Authorization: Basic {MARK}"
    assert redact("GET /v1?key=abcdef0123456789&alt=sse") == f"GET /v1?key={MARK}&alt=sse"
    assert redact("https://me:hunter2@host/v1") == f"https://me:{MARK}@host/v1"
    assert redact(f"x {PEM} y") == f"x {MARK} y"
    assert redact("Incorrect API key provided: sk-abcd1234efgh5678ijkl") == f"Incorrect API key provided: {MARK}"


def test_plain_values_are_cleaned_at_any_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "deep-secret")
    plain = {"deep-secret": [1, None, True, {"x": ("a deep-secret", 2.5)}]}
    assert redact_plain(plain) == {MARK: [1, None, True, {"x": [f"a {MARK}", 2.5]}]}
    message = Message(role="user", text="nothing here")
    assert redact_record(message) is message


# ---------------------------------------------------------------- no false hits


CORPUS = sorted((Path(hipwright.__file__).parent / "audit" / "corpus").rglob("*"))
SOURCES = sorted(Path(hipwright.__file__).parent.rglob("*.[mphc]*"))


def test_every_source_of_the_corpus_is_left_alone() -> None:
    files = [path for path in CORPUS if path.is_file() and path.suffix in (".py", ".toml", ".hip")]
    assert len(files) > 250
    assert [path for path in files if (text := path.read_text()) != redact(text)] == []


def test_our_own_sources_and_knowledge_are_left_alone() -> None:
    files = [path for path in SOURCES if path.is_file() and path.suffix in (".py", ".md", ".h", ".cpp")]
    assert len(files) > 400
    assert [path for path in files if (text := path.read_text()) != redact(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "the task-level-parallelism-of-1024-blocks",
        "a Basic 128x128-tile matmul, a bearer 8-byte",
        "hf_attention_forward_kernel_v2_float16",
        "sk-learn-style-names-without-digits",
        "x = key ? token=1 : secret=2; a ? key=b : c;",
        "api_key = settings.read_it_from_the_environment",
        "https://docs.example.com/a/b?page=12345678#x",
        "git@github.com:me/repo.git and me@example.com",
        "__shfl_xor_sync(0xffffffffffffffff, v, 16) ghp_ AKIA sk- Bearer",
        "std::map<std::string, int> m; a::b::c(); http://localhost:8000/v1",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


HOSTILE = """-----BEGIN PRIVATE KEY-----|sk-|sk-a1 |a.|://|://a:|://a:b|?key=|eyJ|eyJaaaaaaaaaaaa.|Bearer |bearer\t
|api_key|api_key: |Authorization: Basic |<secret>|a|1|AIza|-|_| |@|-----BEGIN PRIVATE KEY-----xxxx----|ghp_a1"""


@pytest.mark.parametrize("piece", HOSTILE.split("|"))
def test_a_hostile_text_costs_no_more_than_a_dull_one(piece: str) -> None:
    text = piece * (300_000 // len(piece))
    began = time.process_time()
    redact(text)
    assert time.process_time() - began < 3.0
