"""The template environment of all pages: escaping, filters, syntax highlighting. No script and no request.

Names, sources and messages may come from hostile task files and programs: Jinja escapes every value, control and
bidirectional characters are shown as codes, and a content security policy forbids scripts and requests.
"""

from __future__ import annotations

import json
import unicodedata
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pygments import highlight as pygments_highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import bygroups, inherit, using
from pygments.lexers import CppLexer, PythonLexer
from pygments.token import String

from hipwright.report import formatting

LIGHT_STYLE, DARK_STYLE = "xcode", "github-dark"  # contrast of 4.5 and more


class ProgramLexer(PythonLexer):  # type: ignore[misc]
    """Lexes a program file: the plan as Python, the literal HIP = r'''...''' as C++."""

    _hip = bygroups(String, using(CppLexer), String)  # type: ignore[no-untyped-call]
    tokens = {"root": [(r"(?s)(HIP = r'''\n)(.*?)(\n''')", _hip), inherit]}  # noqa: RUF012 (pygments reads it here)


_LEXERS = {"python": PythonLexer, "hip": CppLexer, "program": ProgramLexer}


@cache
def environment(package: str = "hipwright.report") -> Environment:
    """The Jinja environment of the package's `templates/`."""
    env = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_finalize,
    )
    env.filters.update(
        code=highlight,
        num=formatting.number,
        seconds=formatting.seconds,
        bytes=formatting.byte_count,
        plain=plain,
        percent=formatting.percent,
    )
    return env


def _finalize(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def visible(text: str) -> str:
    """Writes characters that hide or reorder others (controls, bidirectional marks) as codes."""
    return "".join(c if c in "\n\t" or _shown(c) else f"\\u{ord(c):04x}" for c in text)


def _shown(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def plain(value: Any) -> str:
    """Formats a value of an evidence table: strings unchanged, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def highlight(text: str, language: str) -> Markup:
    """Returns source code as highlighted, escaped HTML with line numbers; language: python, hip, or program (both)."""
    formatter = HtmlFormatter(linenos="inline", cssclass="code", wrapcode=True)
    lexer = _LEXERS[language](stripnl=False)
    return Markup(pygments_highlight(visible(text), lexer, formatter))


@cache
def code_css() -> Markup:
    """The style rules of Pygments for both colour schemes, without backgrounds."""
    light, dark = (_rules(HtmlFormatter(style=style, nobackground=True)) for style in (LIGHT_STYLE, DARK_STYLE))
    return Markup(f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}")


def themed_code_css() -> str:
    """The same rules where the root's `data-theme` (light, dark or unset) chooses the colour scheme."""
    light, dark = (HtmlFormatter(style=style, nobackground=True) for style in (LIGHT_STYLE, DARK_STYLE))
    chosen = _rules(dark, ":root[data-theme=dark] .code")
    preferred = _rules(dark, ":root:not([data-theme=light]) .code")
    return f"{_rules(light)}\n{chosen}\n@media (prefers-color-scheme: dark) {{\n{preferred}\n}}"


def _rules(formatter: Any, selector: str = ".code") -> str:  # pygments' stubs leave get_style_defs untyped
    return str(formatter.get_style_defs(selector))
