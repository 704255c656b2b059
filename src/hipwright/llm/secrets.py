"""Redacts keys and passwords from everything that is logged or sent: known values, and texts with the shape of a key.

`redact` is applied to every request, answer and error text before logging (docs/llm-budget.md).
"""

from __future__ import annotations

import functools
import json
import os
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus, unquote, urlsplit

from hipwright.records import Record

MARK = "<secret>"
_SHORTEST = 8  # of a value in the environment: shorter ones occur in ordinary text
_SHORTEST_REGISTERED = 4

_NAME = re.compile(
    r"(?:^|_)(?:[A-Z0-9]*KEYS?|[A-Z0-9]*TOKEN|TOKENS|[A-Z0-9]*SECRETS?|[A-Z0-9]*PASSWORDS?|PASSWD|PASSPHRASE|PASS|PW"
    r"|PAT|CREDENTIALS?|CREDS?|AUTH|BEARER|COOKIE|SIGNATURE|JWT|DSN)(?:$|_)"
)
_NO_NAME = re.compile(r"_(?:SOCK|PATH|FILE|DIR|TTY|PID|TYPE|NAME)$")  # where a secret is, not what it is

_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"  # also after an escaped line end of a nested text
_DIGIT = r"(?=[^\s\"'<>]{0,80}\d)"  # keys have digits, hyphenated words do not
_PEM = r"[A-Z ]{0,20}PRIVATE KEY-----"
_HEADER = r"\b(?i:authorization|x-api-key|x-goog-api-key|api[_-]?key)[\"']?\s*[:=]\s*[\"']?(?i:(?:basic|token)\s+)?"

# Every repetition is bounded or cannot overlap itself, so that a hostile text costs no more than an ordinary one.
# The first column is what a lower-case text must contain for the pattern to be tried: most texts contain none.
SHAPES: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = tuple(
    (tuple(hints.split("|")), re.compile(shape))
    for hints, shape in (
        ("private key-----", rf"(?P<keep>)-----BEGIN {_PEM}(?:[^-]|-(?!----)){{0,8192}}-----END {_PEM}"),
        ("sk-|rk-|pk-", rf"(?P<keep>){_START}(?:sk|rk|pk)-{_DIGIT}[A-Za-z0-9_-]{{16,}}"),
        ("akia|asia", rf"(?P<keep>){_START}(?:AKIA|ASIA)[0-9A-Z]{{16}}"),
        ("aiza", rf"(?P<keep>){_START}AIza[0-9A-Za-z_-]{{30,}}"),
        (
            "ghp_|gho_|ghu_|ghs_|ghr_|hf_|gsk_|r8_",
            rf"(?P<keep>){_START}(?:gh[pousr]|hf|gsk|r8)_{_DIGIT}[A-Za-z0-9]{{20,}}",
        ),
        ("github_pat_", rf"(?P<keep>){_START}github_pat_{_DIGIT}[A-Za-z0-9_]{{20,}}"),
        (
            "glpat-|nvapi-|pplx-|xai-|xox",
            rf"(?P<keep>){_START}(?:glpat|nvapi|pplx|xai|xox[abprs])-{_DIGIT}[A-Za-z0-9_-]{{20,}}",
        ),
        ("eyj", rf"(?P<keep>){_START}eyJ[A-Za-z0-9_-]{{10,}}\.eyJ[A-Za-z0-9_-]{{10,}}\.[A-Za-z0-9_-]{{10,}}"),
        ("bearer", rf"(?P<keep>\b(?i:bearer)\s+){_DIGIT}[A-Za-z0-9._~+/=-]{{12,}}"),
        ("authorization|api", rf"(?P<keep>{_HEADER}){_DIGIT}[^\s\"'<>,;)]{{12,}}"),
        # passwords, keys as user names, and keys in the query of URLs
        ("://", r"(?P<keep>\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@\"'<>]{0,128}:)[^\s/@\"'<>]{1,256}(?=@)"),
        ("://", rf"(?P<keep>://){_DIGIT}[A-Za-z0-9_-]{{20,256}}(?=@)"),
        (
            "key=|token=|secret=|sig=|signature=",
            rf"(?P<keep>[?&](?i:key|api[_-]?key|access[_-]?token|token|secret|sig|signature)=){_DIGIT}[^\s&\"'<>]{{8,}}",
        ),
    )
)
"""Known shapes of keys: (hints, pattern). Group `keep` stays before the mark."""

R = TypeVar("R", bound=Record)

_registered: set[str] = set()
_mutex = threading.Lock()


def register(secret: str) -> None:
    """Registers a secret that is in no environment variable, such as a key inside a URL."""
    with _mutex:
        if len(secret) >= _SHORTEST_REGISTERED:
            _registered.add(secret)


def known_secrets() -> list[str]:
    """The values to redact, longest first: from the current environment, and registered ones."""
    with _mutex:
        found = set(_registered)
    for name, value in os.environ.items():
        if _NAME.search(name.upper()) and not _NO_NAME.search(name.upper()) and len(value.strip()) >= _SHORTEST:
            found.add(value.strip())
        elif (password := _password(value)) and len(password) >= _SHORTEST_REGISTERED:
            found.add(password)
    return sorted((secret for secret in found if secret not in MARK), key=lambda secret: (-len(secret), secret))


def redact(text: str) -> str:
    """Replaces every known secret and everything with the shape of a key by "<secret>". Idempotent."""
    values = _values(tuple(known_secrets()))
    while True:
        # text between marks is redacted separately, so that no mark is split; each iteration shortens the text
        cleaned = MARK.join(_once(piece, values) for piece in text.split(MARK))
        if cleaned == text:
            return cleaned
        text = cleaned


def redact_record(record: R) -> R:
    """Redacts every string of a record; returns the same object if nothing changed."""
    plain = record.to_dict()
    cleaned = redact_plain(plain)
    return record if cleaned == plain else type(record).from_dict(cleaned)


def redact_plain(value: Any) -> Any:
    """Redacts every string of plain JSON, keys of objects included."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {redact(str(key)): redact_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_plain(item) for item in value]
    return value


def _once(text: str, values: re.Pattern[str] | None) -> str:
    if values is not None:
        text = values.sub(MARK, text)
    lower = text.lower()
    for hints, shape in SHAPES:
        if any(hint in lower for hint in hints):
            text = shape.sub(rf"\g<keep>{MARK}", text)
    return text


@functools.lru_cache(maxsize=64)
def _values(secrets: tuple[str, ...]) -> re.Pattern[str] | None:
    """One pattern for all known values, longest first, in every spelling that logs may contain."""
    spellings = {spelling for secret in secrets for spelling in _spellings(secret)}
    if not spellings:
        return None
    ordered = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
    return re.compile("|".join(_exactly(spelling) for spelling in ordered))


def _exactly(value: str) -> str:
    escaped = re.escape(value)
    # short ones only as a whole word: "test" must not match in "latest"
    return escaped if len(value) >= _SHORTEST else rf"(?<!\w){escaped}(?!\w)"


def _spellings(secret: str) -> Iterable[str]:
    """The secret and its long lines: as they are, escaped as in JSON or a repr, and percent-encoded."""
    lines = secret.splitlines()
    parts = [secret]
    if len(lines) > 1:
        parts.append("\r\n".join(lines))
        parts += [line.strip() for line in lines if len(line.strip()) >= _SHORTEST and "-----" not in line]
    for part in parts:
        yield part
        yield json.dumps(part)[1:-1]
        yield json.dumps(part, ensure_ascii=False)[1:-1]
        yield repr(part)[1:-1]
        yield quote(part, safe="")
        yield quote_plus(part)


def _password(value: str) -> str:
    """The password in a URL, else ""."""
    if "://" not in value or "@" not in value:
        return ""
    try:
        return unquote(urlsplit(value).password or "")
    except ValueError:
        return ""
