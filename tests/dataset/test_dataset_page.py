"""The statistics page: complete, escaped, without scripts, to scale, and no wider than the screen."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hipwright.dataset.stats import DatasetTally, dataset_figures
from hipwright.report import dataset_page
from hipwright.report.dataset_page import DatasetPage, bar_list, histogram, render_dataset
from tests.dataset.made_up import many
from tests.dataset.pair_sample import pair, timing

HOSTILE = "\"><script>alert(1)</script>\u202e{{ 7*7 }}' onload=x "
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PROBE = """<!doctype html><iframe id=f src="page.html" style="width:{width}px;height:800px"></iframe>
<pre id=out></pre><script>
onload = () => {{
  const d = document.getElementById("f").contentDocument, style = d.defaultView.getComputedStyle(d.body);
  const past = e => !e.closest(".scroll") && e.getBoundingClientRect().right > {width} + 1;
  document.getElementById("out").textContent = JSON.stringify({{
    wide: d.documentElement.scrollWidth, scripts: d.scripts.length, images: d.images.length,
    late: [...d.querySelectorAll("*")].filter(past).map(e => e.className.baseVal ?? e.className),
    paper: style.backgroundColor, bars: d.querySelectorAll("rect.barmark").length,
    resources: d.defaultView.performance.getEntriesByType("resource").map(e => e.name) }});
}};</script>"""


def page(count: int = 350, text: str = "", **more: object) -> str:
    facts = {
        "title": f"Made up {text}",
        "source": f"data/{text}",
        "command": f"hipwright dataset build {text}",
    }
    return render_dataset(DatasetPage(figures=dataset_figures(many(count, text=text)), **(facts | more)))  # type: ignore[arg-type]


def test_every_figure_is_on_the_page() -> None:
    html, figures = page(700), dataset_figures(many(700))
    for words in ("700 pairs", "By kind", "Families of operators", "Data types", "Difficulty", "Estimated time"):
        assert words in html
    names = [
        *figures["kinds"],
        *figures["families"],
        *figures["dtypes"],
        *figures["splits"],
        *figures["wrong_by_status"],
    ]
    assert all(f">{name}<" in html for name in names)
    assert html.count('<svg class="plot"') == 5  # coverage; estimates and gains of two targets
    assert "<script" not in html and "Nothing here was run or timed on an AMD GPU" in html


def test_hostile_names_are_escaped() -> None:
    html = page(140, HOSTILE)
    assert "<script" not in html and HOSTILE not in html and "\u202e" not in html
    assert "{{ 7*7 }}" in html, "shown as it is, not evaluated"


def test_pages_of_an_empty_and_an_unmeasured_data_set() -> None:
    empty = render_dataset(
        DatasetPage(title="none", figures=DatasetTally().figures(), source="", command="x", unread=3)
    )
    assert "0 pairs" in empty and "<svg" not in empty and "not counted: 3" in empty
    bare = pair("softmax_block", "softmax", builds={}, estimate_us={})
    html = render_dataset(DatasetPage(title="one", figures=dataset_figures([bare]), source="d", command="x"))
    assert html.count("<svg") == 1 and "AMD builds" not in html and "Estimated time" not in html


def test_what_was_timed_is_named() -> None:
    amd = timing(1.0, 1.2, "AMD MI300X")
    amd = type(amd).from_dict({**amd.to_dict(), "architecture": "gfx942"})
    html = render_dataset(
        DatasetPage(
            title="t", figures=dataset_figures([pair("softmax_block", "softmax", timing=amd)]), source="d", command="x"
        )
    )
    assert "Nothing here was run" not in html
    html = render_dataset(
        DatasetPage(
            title="t",
            figures=dataset_figures([pair("softmax_block", "softmax", timing=timing(1, 2))]),
            source="d",
            command="x",
        )
    )
    assert "Timed on NVIDIA H200 (sm_90): 1" in html and "Nothing here was run" in html


def test_bars_are_to_scale() -> None:
    chart = histogram(["a", "b", "c"], [46, 0, 23], [(0, "0"), (1, "1")], "x")
    tall, half = chart.columns
    base = dataset_page.HEIGHT - dataset_page.BOTTOM
    assert tall.height == pytest.approx(2 * half.height, abs=0.2)
    assert tall.height == pytest.approx(0.92 * (base - dataset_page.TOP), abs=0.2), "46 of an axis to 50"
    assert tall.y + tall.height == pytest.approx(base, abs=0.2) == half.y + half.height
    assert [tick.label for tick in chart.y_ticks] == ["0", "10", "20", "30", "40", "50"]
    assert chart.summary == "a: 46; c: 23"
    rows = bar_list({f"n{k}": 100 - k for k in range(60)})
    assert rows.left_out == 20 and rows.rows[0].share == 1.0 and rows.rows[10].share == 0.9


@pytest.mark.parametrize("most", [1, 3, 7, 19, 101, 4999, 10**6])
def test_axes_have_few_round_ticks_above_all_bars(most: int) -> None:
    top, step = dataset_page._round_scale(most)
    assert top >= most and top - step < most and top // step <= 5 and str(step).strip("0") in ("1", "2", "5")


def test_targets_share_one_axis() -> None:
    slow = {"bins": [{"low": 100.0, "high": 177.8, "count": 4}]}
    fast = {"bins": [{"low": 1.0, "high": 1.778, "count": 2}]}
    plots = dataset_page.estimate_plots({"gfx942": slow, "gfx950": fast})
    assert plots["gfx942"].x_ticks == plots["gfx950"].x_ticks
    assert plots["gfx950"].columns[0].x < plots["gfx942"].columns[0].x


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium here: scripts/system-deps.sh chromium installs it")
@pytest.mark.parametrize(("width", "text"), [(360, ""), (1280, HOSTILE), (360, HOSTILE)])
def test_fits_and_stays_inert_in_a_browser(tmp_path: Path, width: int, text: str) -> None:
    (tmp_path / "page.html").write_text(page(700, text))
    (tmp_path / "probe.html").write_text(PROBE.format(width=width))
    papers = []
    for scheme in ([], ["--blink-settings=preferredColorScheme=0"]):
        command = [
            str(BROWSER),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            *scheme,
            "--disable-background-networking",
            "--allow-file-access-from-files",
            "--virtual-time-budget=4000",
            "--dump-dom",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"file://{tmp_path}/probe.html",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        match = re.search(r"<pre id=\"out\">(\{.*?\})</pre>", done.stdout, re.DOTALL)
        assert match, done.stderr[-2000:]
        seen = json.loads(match[1])
        assert seen["scripts"] == seen["images"] == 0 and seen["resources"] == []
        assert seen["late"] == [], "these elements reach past the right edge"
        assert seen["wide"] <= width and seen["bars"] > 15
        papers.append(sum(map(int, re.findall(r"\d+", seen["paper"])[:3])))
    assert papers[0] > 600 and papers[1] < 150, "light, then dark"
