"""A stranger's path, timed and pictured: install, optimise, look, compare, export, use the package. Needs no GPU.

    python -m benchmarks stranger [--wheel FILE] [--out DIR] [--pictures DIR] [--pip-flags FLAGS]

Everything happens below --out (out/stranger): an empty environment, archive and caches. Without --wheel the wheel is
built first, which is not timed. Prints the seconds of each step as JSON; exit code 1 when a step fails, or when all
together take more than five minutes. --pictures also draws each step's screen (docs/pictures).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import ROOT
from benchmarks.stranger import screens
from hipwright.errors import BadInput

LIMIT = 300.0
"""Seconds that all steps may take together."""
TASK = "rmsnorm_swiglu"
USE = f"""\
import torch, {TASK}

model = {TASK}.Module(1024, 1e-6, allow_reference=True)
with torch.no_grad():
    y = model(torch.randn(4, 128, 2048))
print(tuple(y.shape), torch.ops.{TASK}.forward.default._schema.name)
"""
_ADDRESS = re.compile(r"http://\S+")


@dataclass
class Walk:
    """The folder in which the path is walked, and what was noted on it."""

    folder: Path
    pictures: Path | None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def env(self) -> Mapping[str, str]:
        """The environment of a fresh user with the virtual environment on the path."""
        kept = {key: os.environ[key] for key in os.environ if key.startswith(("PIP_", "LANG", "SSL_"))}
        own = {"HOME": str(self.folder), "COLUMNS": str(screens.WIDTH), "FORCE_COLOR": "1", "PYTHONUTF8": "1"}
        return {**kept, **own, "PATH": f"{self.folder / 'env/bin'}:{os.environ['PATH']}"}

    def step(self, name: str, commands: Mapping[str, str]) -> None:
        """Runs the commands of a step and draws them. commands: {the line as it is shown: the line as it is run}."""
        said, begun = [], time.monotonic()
        for shown, line in commands.items():
            done = subprocess.run(shlex.split(line), cwd=self.folder, env=self.env, capture_output=True, text=True)
            if done.returncode:
                raise BadInput(
                    f"{name}: `{line}` ends with {done.returncode}: {done.stderr[-800:]}{done.stdout[-400:]}"
                )
            said += [f"\x1b[1;32m$\x1b[0m {shown}", *_kept(done.stderr), *_kept(done.stdout)]
        self.seconds[name] = round(time.monotonic() - begun, 1)
        if self.pictures is not None:
            text = "\n".join(said).replace(str(self.folder), "~")
            screens.terminal(text, self.pictures / f"{name}.svg", f"hipwright: {name}")


def _kept(said: str) -> list[str]:
    lines = said.rstrip().split("\n") if said.strip() else []
    return [line for line in lines if not line.startswith(("WARNING", "[notice]"))]


def look(path: Walk) -> None:
    """Opens the archive in a browser: the seconds until it answers, and pictures of the run's page and the report."""
    begun = time.monotonic()
    argv = [str(path.folder / "env/bin/hipwright"), "view", "--port", "0"]
    server = subprocess.Popen(argv, cwd=path.folder, env=path.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        address = _address(server)
        path.seconds["look"] = round(time.monotonic() - begun, 1)
        if path.pictures is not None:
            run = newest_runs(path)[0]
            report = (path.folder / "demo/report.html").as_uri()
            pictures = {f"{address}runs/{run}": "view.png", report: "report.png"}
            screens.pages([(page, path.pictures / name) for page, name in pictures.items()])
    finally:
        server.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            server.wait(10)
        server.kill()


def _address(server: subprocess.Popen[bytes]) -> str:
    assert server.stdout is not None
    for line in server.stdout:
        if found := _ADDRESS.search(re.sub(r"\x1b\[[\d;]*m", "", line.decode())):
            return found.group().rstrip("/.,") + "/"
    raise BadInput("hipwright view ended without an address")


def newest_runs(path: Walk) -> list[str]:
    """The ids of the archive's runs, newest first."""
    argv = [str(path.folder / "env/bin/hipwright"), "runs", "--json"]
    done = subprocess.run(argv, cwd=path.folder, env=path.env, capture_output=True, text=True, check=True)
    return [run["id"] for run in json.loads(done.stdout)["runs"]]


def compare(path: Walk) -> None:
    """A search that begins with a kernel written by hand, and its run beside the first one."""
    started = f"hipwright optimize {TASK}.py --start hand.cu --budget 1 --out other"
    beside = f"hipwright compare {newest_runs(path)[0]} latest"
    path.step("compare", {started: started, beside: beside})


def steps(path: Walk, wheel: Path, pip_flags: str) -> list[Callable[[], None]]:
    """All steps, in order."""
    install = f"pip install --quiet {pip_flags} 'hipwright[cpu,view] @ {wheel.as_uri()}'"
    search = f"hipwright optimize {TASK}.py --budget 12 --out demo"
    export = "hipwright export latest --format torch-op --out package"
    return [
        lambda: path.step(
            "install",
            {
                "python3 -m venv env && . env/bin/activate": f"{sys.executable} -m venv env",
                f"pip install 'hipwright[cpu,view] @ {wheel.name}'": install,
                "hipwright --version": "hipwright --version",
                "hipwright doctor": "hipwright doctor",
            },
        ),
        lambda: path.step("optimise", {search: search}),
        lambda: look(path),
        lambda: compare(path),
        lambda: path.step("export", {export: export, "ls package/src/*": "ls package/src/" + TASK}),
        lambda: path.step(
            "use",
            {
                "pip install ./package": f"pip install --quiet {pip_flags} ./package",
                "cat app/use.py": "cat app/use.py",
                "python app/use.py": "python app/use.py",
            },
        ),
    ]


def built_wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise BadInput(f"the wheel is not built: {done.stderr[-800:]}")
    return next(folder.glob("hipwright-*.whl"))


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--wheel", type=Path, help="a wheel of hipwright; without it this checkout's is built")
    parser.add_argument("--out", type=Path, default=Path("out/stranger"), help="a folder that does not exist yet")
    parser.add_argument("--pictures", type=Path, help="draw each step's screen into this folder; needs chromium")
    parser.add_argument("--pip-flags", default="", help="for pip install, such as --extra-index-url URL")


def run(options: argparse.Namespace) -> int:
    """Walks the path and prints its seconds."""
    if options.out.exists():
        raise BadInput(f"{options.out} exists", hint="the path begins in a new folder: remove it, or name another")
    options.out.mkdir(parents=True)
    path = Walk(options.out.resolve(), options.pictures)
    if path.pictures is not None:
        path.pictures.mkdir(parents=True, exist_ok=True)
    wheel = (options.wheel or built_wheel(path.folder / "dist")).resolve()
    shutil.copy(ROOT / f"examples/{TASK}.py", path.folder)
    shutil.copy(ROOT / f"examples/starts/{TASK}.cu", path.folder / "hand.cu")
    (path.folder / "app").mkdir()
    (path.folder / "app/use.py").write_text(USE, encoding="utf-8")
    for one in steps(path, wheel, options.pip_flags):
        one()
    total = round(sum(path.seconds.values()), 1)
    print(json.dumps({"seconds": path.seconds, "total": total, "limit": LIMIT, "processors": os.cpu_count()}))
    return int(total > LIMIT)
