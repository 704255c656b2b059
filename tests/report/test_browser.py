"""The page in a real browser: no script runs; it fits phone and desktop screens in both colour schemes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from report_sample import HOSTILE, sample

from hipwright.report import render

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--allow-file-access-from-files",
    "--virtual-time-budget=4000",
    "--dump-dom",
]
PROBE = """<!doctype html><title>probe</title>
<iframe id=f src="report.html" style="width:{width}px;height:800px"></iframe>
<pre id=out></pre><script>
onload = () => {{
  const d = document.getElementById("f").contentDocument, style = d.defaultView.getComputedStyle(d.body);
  const past = e => !e.closest(".scroll") && e.getBoundingClientRect().right > {width} + 1;
  document.getElementById("out").textContent = JSON.stringify({{
    wide: d.documentElement.scrollWidth, scripts: d.scripts.length, images: d.images.length,
    late: [...d.querySelectorAll("*")].filter(past).map(e => e.className || e.tagName),
    ink: style.color, paper: style.backgroundColor, circles: d.querySelectorAll("circle").length,
    resources: d.defaultView.performance.getEntriesByType("resource").map(e => e.name) }});
}};</script>"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium here: scripts/system-deps.sh chromium installs it"),
]


def look(folder: Path, html: str, width: int, *, dark: bool = False) -> dict[str, object]:
    (folder / "report.html").write_text(html)
    (folder / "probe.html").write_text(PROBE.format(width=width))
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    command = [str(BROWSER), *FLAGS, *scheme, f"--user-data-dir={folder / 'profile'}", f"file://{folder}/probe.html"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    match = re.search(r"<pre id=\"out\">(\{.*?\})</pre>", done.stdout, re.DOTALL)
    assert match, done.stderr[-2000:]
    seen: dict[str, object] = json.loads(match[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    return seen


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("text", ["", HOSTILE], ids=["plain", "hostile"])
def test_fits_and_stays_inert(tmp_path: Path, width: int, text: str) -> None:
    seen = look(tmp_path, render(sample(text)), width)
    assert seen["scripts"] == 0 and seen["images"] == 0 and seen["resources"] == []
    assert seen["late"] == [], "these elements reach past the right edge"
    assert seen["wide"] <= width  # type: ignore[operator]
    assert int(str(seen["circles"])) > 20


def test_dark_scheme_is_dark(tmp_path: Path) -> None:
    light, dark = (look(tmp_path, render(sample()), 1000, dark=flag) for flag in (False, True))
    assert (light["paper"], light["ink"]) != (dark["paper"], dark["ink"])
    brightness = sum(map(int, re.findall(r"\d+", str(dark["paper"]))[:3]))
    assert brightness < 150, dark["paper"]
