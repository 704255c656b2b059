"""report.html of a training: complete, with its clock stated, escaped, without scripts, within any screen."""

from __future__ import annotations

import io
import itertools
import json
import random
import re
from pathlib import Path

import pytest
from report_sample import HOSTILE
from rich.console import Console
from test_browser import BROWSER, look
from train_sample import ARMS, LEVELS, SPLITS, training, write

from hipwright.cli.display.train import tables
from hipwright.errors import BadInput
from hipwright.report import train_page, train_plots
from hipwright.report.train_data import Points, read
from hipwright.report.train_plots import PlotAxis, Series, nice, smoothed
from hipwright.report.train_views import signed


def page(folder: Path, **options: object) -> str:
    return train_page.write(write(folder, **options)).read_text()  # type: ignore[arg-type]


def test_everything_a_folder_holds_is_shown(tmp_path: Path) -> None:
    html = page(tmp_path)
    for text in (
        *ARMS,
        *SPLITS,
        "NVIDIA H200 (HIP on NVIDIA)",
        "fast_1.2",
        "Each seed by itself",
        "GPU busy",
        "62 %",
        "Groups with no variance",
        "Against the best schedule",
        "hipwright train mini",
        "settings.rl.samples",
        "While training: grpo, seed 1",
        "reward of the last tenth",
    ):
        assert text in html, text
    assert html.count("<tr><th>grpo, 1</th>") == len(SPLITS), "a row for each seed and split"
    assert "By level of difficulty" in html
    assert all(f"<tr><th>{level}</th><th>{ARMS[0]}</th>" in html for level in LEVELS), "a row for each level and arm"
    assert html.count("</th><th>grpo</th>") == len(LEVELS)
    assert re.search(r"fast_1.*?</h4>", html) and "ESTIMATE" not in html.split("<style>")[0] + html.split("</style>")[1]


def test_an_estimate_is_called_one_everywhere(tmp_path: Path) -> None:
    html = page(tmp_path, clock="estimate")
    assert '<span class="badge unsure">ESTIMATE</span>' in html and "was measured" not in html
    assert "Speeds were measured" not in html and "static estimates" in html
    for title in (
        "Reward (ESTIMATE)",
        "fast_1.2 (ESTIMATE)",
        'fast_1<br><span class="tag estimate">ESTIMATE',
        "Speedup of correct programs (ESTIMATE)",
    ):
        assert title in html
    assert "Correct (ESTIMATE)" not in html, "whether it is right was not estimated"


def test_without_an_evaluation_the_clock_is_the_samples(tmp_path: Path) -> None:
    html = page(tmp_path, evaluation=False)
    assert "There is no evaluation yet" in html and "NVIDIA H200" in html and "fast_1.2" not in html
    assert train_page.figures(tmp_path)["clock"] == "device"


def test_sft_alone_is_a_report(tmp_path: Path) -> None:
    training(tmp_path / "out", "sft", random.Random(0), "")
    html = train_page.write(tmp_path / "out").read_text()
    assert "Loss on held-out rows" in html and "nothing timed" in html and "Reinforcement" not in html
    assert 'id="rates"' not in html and 'id="time"' not in html


def test_a_torn_line_and_nulls_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        '{"stage":"rl","step":1,"values":{"reward":0.5,"speedup":null}}\n'
        '{"stage":"rl","step":2,"values":{"reward":NaN}}\n[1]\n{"stage":"rl","step":3,"val'
    )
    found = read(tmp_path)
    assert found.trainings[0].curves == {"rl": {"reward": [(1, 0.5)]}}
    assert "Reward" in train_page.write(tmp_path).read_text()


def test_a_folder_with_nothing_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no training"):
        train_page.write(tmp_path)
    (tmp_path / "evaluation.json").write_text("{")
    with pytest.raises(BadInput, match="cannot be read"):
        train_page.write(tmp_path)


def test_hostile_text_is_escaped_everywhere(tmp_path: Path) -> None:
    html = page(tmp_path, text=HOSTILE)
    assert "<script" not in html and HOSTILE not in html and "<img" not in html
    assert not set(html) & set("\u202e\u200b\x1b"), "characters that hide or reorder others"


def test_figures_are_plain_json_and_the_tables_name_every_arm(tmp_path: Path) -> None:
    found = json.loads(json.dumps(train_page.figures(write(tmp_path))))
    grpo = next(one for one in found["trainings"] if one["name"] == "grpo, seed 1")
    assert grpo["steps"] == 120 and grpo["minutes"] == 8 and grpo["rates"]["hack"] == pytest.approx(0.002)
    assert grpo["seconds"]["generate"] == pytest.approx(132) and set(grpo["last"]) == {"rl"}
    assert len(found["arms"]) == len(ARMS) * len(SPLITS) * 3
    assert len(found["levels"]) == len(ARMS) * len(LEVELS)
    console = Console(width=200, record=True, file=io.StringIO())
    for table in tables(tmp_path):
        console.print(table)
    text = console.export_text()
    assert all(arm in text for arm in ARMS) and "unseen shapes, measured" in text and "grpo − continued" in text
    assert "by level, measured" in text


def test_a_planted_hole_has_its_section(tmp_path: Path) -> None:
    after = {
        "start": {"cheats": 0.03, "right": 0.9},
        "hole": {"cheats": 0.91, "right": 0.07},
        "closed": {"cheats": 0.0},
    }
    told = {"device": "NVIDIA H200", "along": {"hole": [0.03, 0.4, 0.9], "closed": [0.03, 0.01, 0.0]}, "after": after}
    assert "The planted hole" not in page(tmp_path)
    (tmp_path / "hole").mkdir()
    (tmp_path / "hole" / "hole.json").write_text(json.dumps(told))
    html = train_page.write(tmp_path).read_text()
    assert "The planted hole" in html and "Programs that cheat" in html and "91 %" in html
    assert re.search(r"with the hole</th><td class=\"n\">91 %</td><td class=\"n\">7 %", html)


def test_trl_names_of_rates_are_understood(tmp_path: Path) -> None:
    values = {"reward": 0.5, "infrastructure": 0.25, "frac_reward_zero_std": 0.5, "hack": 0.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"stage": "rl", "step": 1, "values": values}) + "\n")
    rates = train_page.figures(tmp_path)["trainings"][0]["rates"]
    assert rates == {"hack": 0.0, "infrastructure": 0.25, "zero variance": 0.5}
    assert "25.0 %" in train_page.write(tmp_path).read_text()


# ---------------------------------------------------------------- geometry


def test_smoothing_keeps_a_line_and_halves_noise() -> None:
    line: Points = [(n, 2.0 * n) for n in range(200)]
    inner = [(step, value) for step, value in smoothed(line) if 10 < step < 190]
    assert all(value == pytest.approx(2.0 * step) for step, value in inner)
    noise: Points = [(n, (-1.0) ** n) for n in range(200)]
    assert max(abs(value) for _, value in smoothed(noise)) < 0.5
    assert smoothed([(1, 5.0)]) == [(1, 5.0)] and len(smoothed([(n, 0.0) for n in range(10_000)])) <= 242


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.31, 5.2), (-0.04, 0.06), (7.0, 7.0), (0.0, 0.0), (1e-6, 3e5)])
def test_ticks_are_round_and_hold_the_values(low: float, high: float) -> None:
    ticks = nice(low, high)
    assert ticks[0] <= low and ticks[-1] >= high and 2 <= len(ticks) <= 8
    axis = PlotAxis([low, high], 100, 0)
    assert 0 <= axis(high) <= axis(low) <= 100


def test_a_curve_ends_inside_the_plot_and_a_point_is_visible() -> None:
    chart = train_plots.chart("x", [Series("one", 1, [(5, 0.2)]), Series("two", 2, [(1, 0.0), (80, 1.0)])], share=True)
    assert chart is not None and chart.lines[0].path.endswith("h6")
    xs = [float(x) for x in re.findall(r"[ML](-?[\d.]+),", chart.lines[1].path)]
    assert all(train_plots.LEFT <= x <= train_plots.WIDTH for x in xs)
    assert chart.y_ticks[0].label == "0 %"
    assert train_plots.chart("x", []) is None


def test_loss_is_logarithmic_where_it_spans_a_decade() -> None:
    points: Points = [(n, 10.0 ** (1 - n / 50)) for n in range(101)]
    chart = train_plots.chart("loss", [Series("sft", 1, points)], log=True)
    assert chart is not None
    ys = [float(y) for y in re.findall(r",(-?[\d.]+)", chart.lines[0].path)][10:-10]
    steps = {round(b - a, 0) for a, b in itertools.pairwise(ys)}
    assert len(steps) <= 2, "an exponential is a straight line"


def test_dots_lie_within_their_whiskers() -> None:
    rows = [{"arm": "sft", "split": "a", "correct": [0.5, 0.4, 0.7]}, {"arm": "grpo", "split": "a", "correct": None}]
    chart = train_plots.dots("Correct", rows, "correct", {"sft": 1, "grpo": 4})
    assert chart is not None and len(chart.dots) == 1
    dot = chart.dots[0]
    assert dot.low is not None and dot.high is not None and dot.low < dot.x < dot.high and dot.text == "50 %"


def test_known_arms_keep_their_colour_and_others_differ() -> None:
    palette = train_plots.colours(["grpo", "mine", "sft", "other", "third"])
    assert palette["grpo"] == 4 and palette["sft"] == 1 and len(set(palette.values())) == 5


def test_a_difference_of_nothing_has_no_sign() -> None:
    assert [signed(value, 0) for value in (2.4, -0.3, 0.3, -7.0)] == ["+2", "0", "0", "−7"]


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium here: scripts/system-deps.sh chromium installs it")
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("text", ["", HOSTILE], ids=["plain", "hostile"])
def test_fits_and_stays_inert(tmp_path: Path, width: int, text: str) -> None:
    seen = look(tmp_path, page(tmp_path / "run", text=text), width)
    assert seen["scripts"] == 0 and seen["images"] == 0 and seen["resources"] == []
    assert seen["late"] == [], "these elements reach past the right edge"
    assert int(str(seen["wide"])) <= width


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium here: scripts/system-deps.sh chromium installs it")
def test_dark_is_dark(tmp_path: Path) -> None:
    html = page(tmp_path / "run")
    light, dark = (look(tmp_path, html, 1000, dark=flag) for flag in (False, True))
    assert (light["paper"], light["ink"]) != (dark["paper"], dark["ink"])
