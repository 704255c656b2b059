"""report.html: one page that needs nothing else. No script, no request, everything escaped.

Names, sources and messages in a report come from task files and programs, which may be hostile: Jinja escapes every
value, control and bidirectional characters are shown as codes, and a content security policy forbids scripts and
requests in case something still slips through.
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

from hipwright.report import plots, views
from hipwright.report.data import ReportData

LIGHT_STYLE, DARK_STYLE = "friendly", "github-dark"


class ProgramLexer(PythonLexer):  # type: ignore[misc]
    """A program as one file: the plan is Python, what stands in HIP = r'''...''' is C++."""

    _hip = bygroups(String, using(CppLexer), String)  # type: ignore[no-untyped-call]
    tokens = {"root": [(r"(?s)(HIP = r'''\n)(.*?)(\n''')", _hip), inherit]}  # noqa: RUF012 (pygments reads it here)


_LEXERS = {"python": PythonLexer, "hip": CppLexer, "program": ProgramLexer}


def render(data: ReportData) -> str:
    """The whole page."""
    page: str = (
        _environment()
        .get_template("report.html.j2")
        .render(
            data=data,
            evaluation=data.evaluation,
            headline=views.headline(data),
            tiles=views.tiles(data),
            resources=views.resources(data.evaluation),
            verification=views.verification(data.evaluation),
            fusion=views.fusion(data.explanation),
            statuses=views.statuses(data.trials),
            score_plot=plots.score_plot(data.trials),
            lineage=plots.lineage(data.trials),
            kind_of=plots.kind_of,
            code_css=_code_css(),
        )
    )
    return page


@cache
def _environment() -> Environment:
    env = Environment(
        loader=PackageLoader("hipwright.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_finalize,
    )
    env.filters.update(
        code=highlight,
        num=views.number,
        seconds=views.seconds,
        bytes=views.byte_count,
        plain=plain,
        percent=views.percent,
    )
    return env


def _finalize(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def visible(text: str) -> str:
    """`text` with characters that hide or reorder others (controls, bidirectional marks) written as codes."""
    return "".join(c if c in "\n\t" or _shown(c) else f"\\u{ord(c):04x}" for c in text)


def _shown(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def plain(value: Any) -> str:
    """A value of an evidence table: strings as they are, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def highlight(text: str, language: str) -> Markup:
    """Source code as highlighted, escaped HTML with line numbers; language: python, hip, or program (both)."""
    formatter = HtmlFormatter(linenos="inline", cssclass="code", wrapcode=True)
    lexer = _LEXERS[language](stripnl=False)
    return Markup(pygments_highlight(visible(text), lexer, formatter))


@cache
def _code_css() -> Markup:
    """Pygments' rules for both colour schemes, without their own backgrounds."""
    light, dark = (_rules(HtmlFormatter(style=style, nobackground=True)) for style in (LIGHT_STYLE, DARK_STYLE))
    return Markup(f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}")


def _rules(formatter: Any) -> str:  # pygments' stubs leave get_style_defs untyped
    return str(formatter.get_style_defs(".code"))
