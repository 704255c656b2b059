"""Cleans the text of an answer: line ends, invisible characters, reasoning, smart quotes.

Every function is linear in the text's length, also for hostile answers.
"""

from __future__ import annotations

import re
from typing import Literal

_INVISIBLE = dict.fromkeys(
    [*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), *range(0x2066, 0x206A), 0xFEFF, 0xAD]
)
_SPACES = "\u00a0\u2002-\u200a\u202f\u205f\u3000"
_TAG = re.compile(r"(?<!`)<(/?)(?:think|thinking|thought|reasoning|scratchpad)>(?!`)", re.IGNORECASE)
_WRAPPER = re.compile(
    r"^[ \t]*+(?:</?(?:answer|code|program|solution|output|artifact|response|python)(?: [^<>\n]{0,200})?>"
    r"|<\|[a-z_]{1,40}\|>)[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_SPECIAL = re.compile(r"<\|[a-z_]{1,40}\|>|</s>[ \t\n]*\Z")


def clean(text: str) -> tuple[str, list[str]]:
    """Returns (the answer with "\\n" line ends and visible characters only, notes on the changes)."""
    notes = []
    plain = text.encode("utf-8", "replace").decode()  # lone surrogates can be neither stored nor compiled
    plain = plain.replace("\x00", "")
    if "\r" in plain:
        plain = plain.replace("\r\n", "\n").replace("\r", "\n")
        notes.append("line ends of Windows")
    seen = plain.translate(_INVISIBLE)
    if seen != plain:
        notes.append("invisible characters removed")
    bare = _SPECIAL.sub("", _WRAPPER.sub("", seen))
    if bare != seen:
        notes.append("tags around the answer removed")
    return bare, notes


def without_reasoning(text: str) -> tuple[str, bool, bool]:
    """Returns (the text without <think> parts, whether there were any, whether the last one is open)."""
    parts: list[str] = []
    at, inside, found = 0, False, False
    for match in _TAG.finditer(text):
        found = True
        if match[1]:
            if not inside:
                parts.clear()  # some servers drop the opening tag: all text before is reasoning
            inside, at = False, match.end()
        elif not inside:
            parts.append(text[at : match.start()])
            inside = True
    if not inside:
        parts.append(text[at:])
    return "\n".join(parts) if found else text, found, inside


# ---------------------------------------------------------------- characters outside of strings

Language = Literal["python", "cpp"]
_TOKEN = {
    "python": re.compile(rf"'''|\"\"\"|'|\"|#[^\n]*|[“”„]{{3}}|[‘’‚]{{3}}|[“”„]|[‘’‚]|[{_SPACES}−]"),
    "cpp": re.compile(rf"//[^\n]*|/\*|'|\"|[“”„]|[‘’‚]|[{_SPACES}−]"),
}
_ODD = re.compile(rf"[“”„‘’‚−{_SPACES}]")


def straighten(code: str, language: Language) -> str:
    """Replaces smart quotes, special spaces and minus signs outside of strings and comments by ASCII."""
    if not _ODD.search(code):
        return code
    out: list[str] = []
    at = 0
    while match := _TOKEN[language].search(code, at):
        out.append(code[at : match.start()])
        token = match.group()
        if token[0] in "#/" and token != "/*":
            out.append(token)
            at = match.end()
        elif token[0] in "“”„‘’‚":
            at = _smart(code, match.end(), token, out)
        elif token == "/*" or token[0] in "'\"":
            end = _close(code, match.end(), ("*/",) if token == "/*" else (token,))
            out.append(code[match.start() : end])
            at = end
        else:
            out.append("-" if token == "−" else " ")
            at = match.end()
    out.append(code[at:])
    return "".join(out)


def _smart(code: str, at: int, token: str, out: list[str]) -> int:
    """Replaces both ends of a literal that a smart quote opens."""
    plain = '"' if token[0] in "“”„" else "'"
    closers = tuple(c * len(token) for c in ("“”„" if plain == '"' else "‘’‚"))
    end = _close(code, at, (*closers, plain * len(token)))
    body = code[at:end]
    out.append(plain * len(token))
    if body.endswith((*closers, plain * len(token))):
        body = body[: -len(token)] + plain * len(token)
    out.append(body)
    return end


def _close(code: str, at: int, closers: tuple[str, ...]) -> int:
    """The end of the literal or comment that began before `at`.

    An open one takes the rest of its line (single quote) or of the text, so that no text is read twice.
    """
    stop = code.find("\n", at) if len(closers[0]) == 1 else -1
    stop = stop if stop >= 0 else len(code)
    wanted = "|".join(re.escape(c) for c in closers)
    for match in re.compile(rf"\\.|{wanted}", re.DOTALL).finditer(code, at, stop):
        if match.group()[0] != "\\":
            return match.end()
    return stop
