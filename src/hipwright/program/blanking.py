"""Blanks comments, literals and directives of C++ source, so that rules see code only. Lines and columns stay."""

from __future__ import annotations

import functools
import re

CACHED_LENGTH = 1 << 16
"""Characters up to which blanked sources are cached: several rules read the source of one program in turn."""
# every alternative begins with a literal character, so that the regex engine skips from one to the next
_PLAIN = r"""
        //[^\n\\]*+(?:\\\n?+[^\n\\]*+)*+         # line comment, continued by a backslash
      | /\*(?:[^*]++|\*(?!/))*+(?:\*/)?+         # block comment
      | "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"          # string
      | '(?<![0-9A-Za-z_]')(?!')[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'   # character, but not a digit separator
"""
_RAW = r"""(?<![A-Za-z0-9_])(?:u8|[uUL])?R"(?P<d>[^()\\\s]{0,16})\(.*?\)(?P=d)"   # raw string"""
_SKIP = re.compile(_PLAIN, re.VERBOSE | re.DOTALL)
_SKIP_RAW = re.compile(f"{_PLAIN} | {_RAW}\n", re.VERBOSE | re.DOTALL)


def blank(hip: str) -> str:
    """Replaces comments and literals by spaces; line breaks and `extern "C"` stay."""
    return _cached_blank(hip) if len(hip) <= CACHED_LENGTH else _blank(hip)


@functools.lru_cache(maxsize=256)
def _cached_blank(hip: str) -> str:
    return _blank(hip)


def _blank(hip: str) -> str:
    def blanked(match: re.Match[str]) -> str:
        text = match.group()
        return text if text == '"C"' else spaces(text)

    return (_SKIP_RAW if 'R"' in hip else _SKIP).sub(blanked, hip)


def spaces(text: str) -> str:
    """Spaces of the same length, with the same line breaks."""
    return "\n".join([" " * len(line) for line in text.split("\n")]) if "\n" in text else " " * len(text)


_DIRECTIVE = re.compile(r"\n[ \t]*+#[^\n\\]*+(?:\\\n?+[^\n\\]*+)*+")


def blank_directives(code: str) -> str:
    """Replaces preprocessor directives by spaces; line breaks stay."""
    return _DIRECTIVE.sub(lambda match: spaces(match.group()), f"\n{code}")[1:] if "#" in code else code
