"""The page of a run: complete, nothing executed or fetched, hostile text escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from msgspec import structs
from report_sample import HOSTILE, sample

from hipwright.measure.gain import Gain
from hipwright.records import Verdict
from hipwright.report import ReportData, render
from hipwright.report.evidence import evidence_table
from hipwright.report.html import visible

PAGE_TAGS = {
    "html",
    "head",
    "meta",
    "title",
    "link",
    "style",
    "body",
    "header",
    "main",
    "nav",
    "section",
    "div",
    "span",
}
TEXT_TAGS = {"a", "h1", "h2", "h3", "h4", "p", "i", "strong", "ul", "li", "details", "summary", "code", "pre", "br"}
DRAWN_TAGS = {"table", "thead", "tbody", "tr", "th", "td", "svg", "g", "path", "circle", "rect", "text"}
INERT_TAGS = PAGE_TAGS | TEXT_TAGS | DRAWN_TAGS


class Page(HTMLParser):
    """Every tag, attribute and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def test_every_section_shows_its_facts() -> None:
    page = Page(render(sample()))
    for fact in (
        "rmsnorm_swiglu",
        "87 %",
        "gfx942 ESTIMATE",
        "not a measurement",
        "speed on MI300X (gfx942) was not measured",
        "extern",
        "chunk",
        "aten.linear",
        "160 B",
        "does not compile",
        "non_contiguous",
        "an empty output proves nothing",
        "kept, new best",
        "hipwright optimize task.py --seed 7",
    ):
        assert fact in page.text, fact
    assert page.tags.count("svg") == 4


@pytest.mark.parametrize("text", ["", HOSTILE])
def test_nothing_runs_and_nothing_is_fetched(text: str) -> None:
    page = Page(render(sample(text)))
    assert set(page.tags) <= INERT_TAGS
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("href", "src", "xlink:href"):
            assert value.startswith(("#", "data:,")), (tag, name, value)
    assert any(name == "content" and "default-src 'none'" in value for _, name, value in page.attributes)
    styles = "".join(re.findall(r"<style>(.*?)</style>", render(sample(text)), re.DOTALL))
    assert "url(" not in styles and "@import" not in styles


def test_hostile_text_is_shown_as_text() -> None:
    html = render(sample(HOSTILE))
    page = Page(html)
    assert visible(HOSTILE) in "".join(page.texts)
    assert "{{ 7*7 }}" in page.text and " 49 " not in page.text
    assert "\u202e" not in html and "\x1b" not in html, "reordering and control characters must be shown as codes"


def test_a_rejected_program_shows_its_evidence_and_no_coverage() -> None:
    page = Page(render(sample(passed=False)))
    for fact in ("wrong_value", "element (3, 17) is wrong", "[3, 17]", "1.25", "-0.5"):
        assert fact in page.text, fact
    assert "of the reference's modelled cost" not in page.text


def test_a_run_without_any_program_still_has_a_report() -> None:
    full = sample(passed=False)
    bare = ReportData(task=full.task, command=full.command, version="0.1.0", note="Nothing passed.", run=full.run)
    page = Page(render(bare))
    assert "no program" in page.text and "Nothing passed." in page.text and "svg" not in page.tags


@pytest.mark.parametrize("count", [1, 2, 700])
def test_any_length_of_search(count: int) -> None:
    data = sample(proposals=count)
    html = render(data)
    assert len(html) < 4_000_000
    if count > 160:
        assert "are left out of this drawing" in html


def test_a_figure_is_never_called_measured_without_a_timing() -> None:
    data = sample()
    assert data.evaluation is not None
    assert "MEASURED" in Page(render(data)).text
    targets = {name: result for name, result in data.evaluation.targets.items() if result.timing is None}
    bare = structs.replace(data, evaluation=structs.replace(data.evaluation, targets=targets))
    assert not re.search(r"\bmeasured on\b|MEASURED", Page(render(bare)).text)


def test_a_pass_shows_what_it_rests_on() -> None:
    page = render(sample())
    section = page[page.index("What the pass rests on") : page.index("Largest error")]
    assert "a pass needs 3 for each" in section and "other inputs" in section and "float32[8, 512]" in section
    assert section.count("<tr>") == 5 and "non_contiguous" in section, "two tables: the answers, and a row a shape"
    assert "What the pass rests on" not in render(sample(passed=False))


@pytest.mark.parametrize("evidence", [None, [], {}, {"cases": 3}, {"cases": {}}, {"cases": {"given": ["x"]}}])
def test_evidence_of_another_version_is_left_out(evidence: object) -> None:
    verdict = Verdict(status="pass", checks={} if evidence is None else {"evidence": evidence})
    table = evidence_table(verdict)
    assert (table is not None) == (evidence == {"cases": {"given": ["x"]}})
    assert table is None or (table["rows"][0]["cases"], table["answers"]) == (1, [])


def test_the_result_comes_first_and_sources_are_folded() -> None:
    html = render(sample())
    order = ["badge good", 'id="plot"', 'id="fusion"', 'id="verification"', 'id="targets"', 'id="source"']
    places = [html.index(one) for one in order]
    assert places == sorted(places)
    sources = html[html.index('id="source"') : html.index('id="reproduce"')]
    assert sources.count('class="code"') == sources.count("<details>") >= 3, "every source is folded"


def test_the_baseline_is_a_line_of_the_plot_and_a_tile() -> None:
    gain = Gain(
        target="gfx942",
        kind="estimate",
        baseline="unfused",
        baseline_us=47.0,
        program_us=9.4,
        factor=5.0,
        bound="memory",
    )
    bare, told = (render(structs.replace(sample(), gains=found)) for found in ((), (gain,)))
    assert 'class="even"' in told[told.index('id="plot"') : told.index('id="fusion"')]
    assert "unfused, 47 µs" in told and "5x faster" in told and "5x faster" not in bare
    assert "unfused 47 µs by the same static model, not a measurement" in Page(told).text
