"""The page of a first contact: every step and what to do, figures with units, and a browser's look at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_browser import BROWSER, look

from hipwright.report.contact_page import fact_text, render_contact

HOSTILE = "\"><script>alert(1)</script>\u202e{{ 7*7 }}' onload=x "


def step(name: str, status: str = "ok", text: str = "", **facts: object) -> dict[str, Any]:
    why = {"message": "", "hint": ""} if status == "ok" else {"message": f"it broke {text}", "hint": f"mend it {text}"}
    output = f"log {text}" * 40
    return {
        "name": name,
        "title": f"the {name} {text}",
        "status": status,
        "seconds": 1.5,
        "facts": facts,
        "output": output,
    } | why


def row(task: str, ratio: float | None = None, **more: object) -> dict[str, Any]:
    known = {} if ratio is None else {"eager": {"speedup": ratio, "interval": (0.9 * ratio, 1.1 * ratio)}}
    blank = {"message": "", "not_timed": "", "median_ms": 0.5, "status": "pass", "correct": True}
    return {"task": task, "speedups": known, **blank, **more}


def report(text: str = "", *, simulated: bool = False) -> dict[str, Any]:
    steps = [
        step("driver", text=text, memory_bytes=192 << 30, path=text),
        step("ceilings", copy=4.1e12, flops={"float16": 6.5e14}, copy_of_datasheet=0.77),
        step("graphs", "failed", text),
        step("a/a", "skipped", text),
    ]
    wrong = {"status": "wrong_value", "correct": False, "message": f"off {text}", "median_ms": None}
    rows = [row("softmax", 2.0), row("gelu", 0.5), row(f"gemm {text}", **wrong)]
    head = {"version": "0", "started": "2026-01-01", "gpu": f"MI300X {text}", "architecture": "gfx942"}
    return {**head, "simulated": simulated, "steps": steps, "rows": rows}


def test_everything_is_on_the_page() -> None:
    page = render_contact(report())
    for words in (
        "2 of 4 steps failed or skipped",
        "What to do next",
        "mend it",
        "192.0 GiB",
        "4,100 GB/s",
        "650 TFLOP/s",
    ):
        assert words in page, words
    for words in ("77 %", "2.00× (1.80 to 2.20)", "wrong_value", "2 of 3", "MEASURED", "geometric mean of 2 programs"):
        assert words in page, words
    assert "SIMULATED" not in page


def test_a_simulated_gpu_is_never_called_measured() -> None:
    page = render_contact(report(simulated=True))
    assert page.count("SIMULATED") == 2 and "MEASURED" not in page
    assert 'badge small good">2.00×' not in page and 'badge small neutral">2.00×' in page


def test_figures_have_their_units() -> None:
    assert fact_text("largest_bytes", 1 << 16) == "64 KiB" and fact_text("low", 0.99123) == "0.991"
    assert fact_text("registers", {"add": 3}) == "add 3" and fact_text("runs", True) == "True"


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium here: scripts/system-deps.sh chromium installs it")
@pytest.mark.parametrize(("width", "text"), [(360, ""), (1280, HOSTILE), (360, HOSTILE)])
def test_fits_and_stays_inert(tmp_path: Path, width: int, text: str) -> None:
    seen = look(tmp_path, render_contact(report(text, simulated=bool(text))), width)
    assert seen["scripts"] == 0 and seen["images"] == 0 and seen["resources"] == []
    assert seen["late"] == [], "these elements reach past the right edge"
    assert int(str(seen["wide"])) <= width
