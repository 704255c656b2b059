"""The parts of `python -m benchmarks gpus`: each starts hipwright's own commands and reads their rows."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT
from benchmarks.fleet import gpus_rows
from benchmarks.fleet.host_use import HostUse
from benchmarks.fleet.seat_killer import SeatKiller, end_marked
from hipwright.audit.mutants import mutants, sample
from hipwright.program import parse

LEAVE_S = 20.0  # after an interrupt, to store what has ended
UP_S = 150.0
TAIL = 1500
MARK = "HIPWRIGHT_GPUS_RUN"  # a variable that only this run's processes have


@dataclass(frozen=True)
class PartSettings:
    """The options that parts need. work: the folder of all runs; the tasks are in work/tasks."""

    target: str
    work: Path
    workers: int
    bench_s: float
    score_s: float
    fleet_s: float
    fleet_tasks: int
    programs: int
    kill_every: float
    seed: int

    @classmethod
    def of(cls, options: argparse.Namespace) -> PartSettings:
        """The settings of a command line."""
        named = {name: getattr(options, name) for name in cls.__dataclass_fields__}
        return cls(**named | {"work": options.work.absolute()})


@dataclass(frozen=True)
class Ended:
    """A command that has ended. cut: by its limit."""

    code: int
    seconds: float
    cut: bool
    out: str
    err: str


def bench(settings: PartSettings, gpus: int) -> dict[str, Any]:
    """The engine's first answers on so many GPUs, from an empty build cache, until the limit."""
    out = settings.work / f"bench-{gpus}"
    words = ["bench", settings.work / "tasks", "--budget", 1, "--target", settings.target, "--seed", settings.seed]
    words += ["--workers", settings.workers, "--gpus", _numbers(gpus), "--out", out, "--json"]
    with HostUse() as use:
        done = command(settings, f"bench-{gpus}", words, settings.bench_s)
    rows = gpus_rows.stored_rows(out)
    figures = gpus_rows.throughput(rows, min(done.seconds, settings.bench_s) if done.cut else done.seconds)
    return _checked(done, bool(rows)) | figures | {"host": use.figures()}


def score(settings: PartSettings, gpus: int) -> dict[str, Any]:
    """Variants of one program on so many GPUs, from an empty build cache."""
    task, programs = score_programs(settings)
    words = ["score", task, *programs, "--target", settings.target, "--gpus", _numbers(gpus)]
    words += ["--seed", settings.seed, "--json"]
    with HostUse() as use:
        done = command(settings, f"score-{gpus}", words, settings.score_s)
    if done.cut or not done.out.strip():
        return {"failed": f"no result in {done.seconds:.0f} s: {done.err[-TAIL:]}"}
    found = json.loads(done.out)
    verdicts = [one["status"] for one in found["scores"]]
    return {
        "task": task.stem,
        "programs": len(verdicts),
        "passed": verdicts.count("pass"),
        "used": len(found["gpus"]),
        "seconds": round(done.seconds, 1),
        "open_s": found["open_s"],
        "score_s": found["score_s"],
        "programs_a_second": round(len(verdicts) / found["score_s"], 2),
        "verdicts": verdicts,
        "host": use.figures(),
    }


def score_programs(settings: PartSettings) -> tuple[Path, list[Path]]:
    """(a task that `bench` solved, files of variants of its shortest program: one in four a mutant of it)."""
    found = []
    for folder in sorted(settings.work.glob("bench-*")):
        right = [row.task for row in gpus_rows.stored_rows(folder) if row.correct and row.median_ms is not None]
        paths = (folder / "programs" / f"{task}.py" for task in right)
        found += [(len(path.read_text()), path.stem, path) for path in paths if path.is_file()]
    if not found:
        raise FileNotFoundError("`bench` left no correct program that was timed: run it first")
    _, task, path = min(found)
    text, into = path.read_text(encoding="utf-8"), settings.work / "variants"
    into.mkdir(exist_ok=True)
    some = sample([mutants(text, parse(text))], seed=settings.seed)[: settings.programs // 4]
    texts = [one.text for one in some]
    texts += [text.replace("{", f"{{ // {number}\n", 1) for number in range(settings.programs - len(texts))]
    paths = [into / f"p{number:04}.py" for number in range(len(texts))]
    for one, text in zip(paths, texts, strict=True):
        one.write_text(text, encoding="utf-8")
    return settings.work / "tasks" / f"{task}.py", paths


def fleet(settings: PartSettings, gpus: int, names: Sequence[str]) -> dict[str, Any]:
    """Tasks of `bench` in the seats of Ray on this host, while seats are killed; compared with the rows of `bench`."""
    known = {row.task: row for row in _bench_rows(settings) if row.judged}
    quick = sorted((name for name in names if name in known), key=lambda name: known[name].seconds)
    chosen = fleet_tasks(settings, gpus, quick or names, known)  # quick ones, as a seat must live longer than a task
    tasks, out = settings.work / "fleet-tasks", settings.work / "fleet"
    tasks.mkdir()
    for name in chosen:
        shutil.copyfile(settings.work / "tasks" / f"{name}.py", tasks / f"{name}.py")
    mark = secrets.token_hex(16)
    more = {
        MARK: mark,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    more |= {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if settings.target == "cuda":
        more["CUDA_VISIBLE_DEVICES"] = _numbers(gpus)
    try:
        up = command(settings, "fleet", ["fleet", "up", "--port", _free_port(), "--json"], UP_S, more)
        if up.code:
            return {"failed": f"fleet up: {up.err[-TAIL:]}"}
        address = json.loads(up.out)["address"]
        words = ["bench", tasks, "--budget", 1, "--target", settings.target, "--seed", settings.seed]
        words += ["--fleet", address, "--out", out, "--json"]
        with HostUse() as use, SeatKiller(MARK, mark, settings.kill_every) as killer:
            done = command(settings, "fleet", words, settings.fleet_s, more)
    finally:
        end_marked(MARK, mark)
    rows = gpus_rows.stored_rows(out)
    figures = {"up_s": round(up.seconds, 1), "kills": killer.kills, "kills_while_evaluating": killer.evaluating}
    asked = [name for name in chosen if not done.cut or name in {row.task for row in rows}]
    figures |= gpus_rows.compared(rows, asked, known) | gpus_rows.throughput(rows, done.seconds)
    return _checked(done, bool(rows)) | figures | {"not_reached": len(chosen) - len(asked), "host": use.figures()}


def fleet_tasks(settings: PartSettings, gpus: int, names: Sequence[str], known: dict[str, Any]) -> list[str]:
    """The first tasks that one order a seat ends in half the limit, as `bench` took for them; kills cost the rest."""
    if settings.fleet_tasks:
        return list(names[: settings.fleet_tasks])
    chosen, left = [], gpus * settings.fleet_s / 2
    for name in names:
        left -= known[name].seconds if name in known else settings.fleet_s
        if left < 0 and len(chosen) >= 2 * gpus:
            break
        chosen.append(name)
    return chosen


def command(
    settings: PartSettings, name: str, words: Sequence[Any], limit_s: float, more: dict[str, str] | None = None
) -> Ended:
    """Runs a hipwright command with a home and a build cache of the run's own; interrupts it at its limit."""
    home = settings.work / "homes" / name
    environment = {**os.environ, "HIPWRIGHT_HOME": str(home), "HIPWRIGHT_CACHE": str(home / "cache"), **(more or {})}
    argv = [sys.executable, "-m", "hipwright", *map(str, words)]
    begun, cut = time.monotonic(), False
    logs = settings.work / "logs"
    logs.mkdir(exist_ok=True)
    out, err = logs / f"{name}-{words[0]}.out", logs / f"{name}-{words[0]}.err"
    with out.open("w") as wrote, err.open("w") as said:
        process = subprocess.Popen(argv, env=environment, stdout=wrote, stderr=said, start_new_session=True)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            cut = True
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(LEAVE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return Ended(process.returncode, time.monotonic() - begun, cut, out.read_text(), err.read_text())


def _bench_rows(settings: PartSettings) -> list[Any]:
    return [row for folder in sorted(settings.work.glob("bench-*")) for row in gpus_rows.stored_rows(folder)]


def _checked(done: Ended, rows: bool) -> dict[str, Any]:
    """How a command ended; a failure where it stored nothing."""
    figures: dict[str, Any] = {"exit": done.code, "cut": done.cut, "wall_s": round(done.seconds, 1)}
    return figures if rows else figures | {"failed": done.err[-TAIL:]}


def _numbers(gpus: int) -> str:
    return ",".join(str(number) for number in range(gpus))


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
