"""SIGKILL and cut connections at every part of a search on a fleet: workers, nodes, head, link, command, database.

    python -m benchmarks fleet-faults --out faults --minutes 8

A search of 500 evaluations, 40 times: in a real Ray cluster whose devices sleep, with its archive in a real
PostgreSQL server. The faults of a piece come evenly over its evaluations. Afterwards every proposal must have one
evaluation, with the verdict that its program must have, and the canonical export must be, byte for byte, that of the
same search on one machine in a SQLite file without a fault. What is done is in OUT/pieces.jsonl: the same command goes
on, and says the sum. Exit code 1 where anything was lost, double, wrong or different, 3 where pieces are left.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.archive.server import Server, running
from benchmarks.fleet.local_fleet import LocalFleet, local_fleet
from benchmarks.fleet.measure import is_ray
from benchmarks.fleet.number_search import TASK, HereJudge, NumbersSource, new_run, truth
from hipwright import search
from hipwright.archive import Archive, export, read_log
from hipwright.records import Evaluation

FAULTS = {"worker": 37, "cut": 4, "link": 3, "node": 2, "command": 2, "head": 1, "database": 1}
"""Faults of a piece of 1,000 evaluations. cut: all connections to the database; link: the process between the command
and Ray; head: its control process, and then the whole cluster is started anew; the others are processes."""
STALL_S = 240.0  # without an evaluation, after which a piece has failed
_CUT = """select pg_terminate_backend(pid) from pg_stat_activity
where backend_type = 'client backend' and pid <> pg_backend_pid()"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--pieces", type=int, default=40)
    parser.add_argument("--evaluations", type=int, default=500, help="of a piece")
    parser.add_argument("--minutes", type=float, default=8.0, help="begin no further piece after this")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--seats", type=int, default=2, help="of each node")
    parser.add_argument("--seconds", type=float, default=0.2, help="of an evaluation")
    parser.add_argument("--json", action="store_true")


class Command:
    """The process of the search, started again whenever it has ended before its run."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.seats: dict[str, int] = {}
        self.link = 0
        self.starts, self.ended_itself = 0, 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts it."""
        words = [sys.executable, "-m", "benchmarks.fleet.fault_search", *self._arguments]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.starts += 1
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(json.JSONDecodeError):  # a line that SIGKILL cut off
                self.events.put(json.loads(line))

    def kill(self) -> bool:
        """SIGKILL, and a new start."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.seats.clear()
        self.start()
        return True

    def look(self) -> None:
        """Starts it again where it has ended by itself before the end: a fault stayed longer than its patience."""
        assert self._process is not None
        if self._process.poll() not in (None, 0):
            self.ended_itself += 1
            time.sleep(1.0)
            self.start()

    def end(self) -> None:
        """Ends it."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self._process.kill()
            self._process.wait()


class Piece:
    """One search with its faults."""

    def __init__(self, fleet: LocalFleet, server: Server, options: argparse.Namespace, number: int) -> None:
        self._fleet, self._server, self._options, self._number = fleet, server, options, number
        self._url, self._name = server.url(f"piece{number}"), f"piece-{number}"
        how = [self._url, self._name, fleet.address, options.evaluations, number, options.seconds]
        self._command = Command([str(word) for word in how])
        share = options.evaluations / 1000
        counts = {kind: max(1, round(count * share)) for kind, count in FAULTS.items()}
        places = [((place + 0.5) / count, kind) for kind, count in counts.items() for place in range(count)]
        self._due = [(place * options.evaluations, kind) for place, kind in sorted(places)]
        self.done: Counter[str] = Counter()
        self._nodes = 0

    def run(self) -> dict[str, Any]:
        """The figures of the piece."""
        begun = time.monotonic()
        self._command.start()
        try:
            self._until_over()
        finally:
            self._command.end()
        found = compared(self._url, self._name, self._options.evaluations, self._number)
        ended = {"starts": self._command.starts, "ended by itself": self._command.ended_itself}
        took = {"piece": self._number, "seconds": round(time.monotonic() - begun, 1)}
        return {**took, **found, **ended, "faults": dict(self.done)}

    def _until_over(self) -> None:
        evaluated, heard = 0, time.monotonic()
        while time.monotonic() - heard < STALL_S:
            try:
                event = self._command.events.get(timeout=0.2)
            except queue.Empty:
                self._command.look()
                continue
            if event["kind"] == "over":
                return
            if event["kind"] == "seat":
                self._command.seats[event["device"]] = event["pid"]
            elif event["kind"] == "link":
                self._command.link = event["pid"]
            elif event["kind"] == "evaluated":
                evaluated, heard = evaluated + 1, time.monotonic()
            while self._due and evaluated >= self._due[0][0] and self._fault(self._due[0][1]):
                self.done[self._due.pop(0)[1]] += 1
        raise TimeoutError(f"no evaluation in {STALL_S:.0f} s, after {evaluated}; faults so far: {dict(self.done)}")

    def _fault(self, kind: str) -> bool:
        """Makes a fault; False where there is nothing to kill yet."""
        match kind:
            case "worker":
                return _killed(list(self._command.seats.values()), "worker")
            case "link":
                return _killed([self._command.link], "link")
            case "command":
                return self._command.kill()
            case "node":
                self._nodes += 1
                self._fleet.kill_node(random.choice(self._fleet.nodes))
                self._fleet.add(f"p{self._number}n{self._nodes}", {"fake": self._options.seats})
            case "head":
                self._fleet.kill_head()
                self._fleet.restart()
            case "cut":
                self._server.psql(_CUT)
            case "database":
                self._server.stop(signal.SIGKILL)
                self._server.start()
        return True


def compared(url: str | Path, name: str, evaluations: int, seed: int) -> dict[str, Any]:
    """What an archive has of a piece, against what must be there and what one machine writes without a fault."""
    with Archive(url) as archive:
        events, text = archive.events(name), export(archive, name, canonical=True)
        log = read_log(events)
        times = Counter(event.number for event in events if event.kind == "evaluated")
        wanted = {number for number, one in log.proposed.items() if one.evaluable}
        found = {number: one.evaluation for number, one in log.evaluated.items()}
        wrong = sum(_verdict(one) != _verdict(truth(archive.program(one.program))) for one in found.values())
    return {
        "evaluations": len(found),
        "lost": len(wanted - found.keys()) + max(0, evaluations - len(found)),
        "double": sum(times.values()) - len(times),
        "wrong": wrong,
        "export equals one machine's": text == _alone(evaluations, seed),
    }


def _alone(evaluations: int, seed: int) -> str:
    """The canonical export of the same search on one machine, without a fault."""
    with tempfile.TemporaryDirectory() as folder, Archive(Path(folder)) as archive:
        made = new_run("alone", evaluations, seed)
        search.run(archive, made, TASK, evaluator=HereJudge(), source=NumbersSource())
        return export(archive, made.id, canonical=True)


def _verdict(one: Evaluation) -> tuple[Any, ...]:
    return one.task, one.program, one.status, one.fault, one.score


def _killed(pids: list[int], kind: str) -> bool:
    alive = [pid for pid in pids if pid and is_ray(pid, kind)]
    if not alive:
        return False
    with suppress(ProcessLookupError):
        os.kill(random.choice(alive), signal.SIGKILL)
    return True


def run(options: argparse.Namespace) -> int:
    """Runs the pieces that are left, while there is time."""
    options.out.mkdir(parents=True, exist_ok=True)
    path, until = options.out / "pieces.jsonl", time.monotonic() + 60 * options.minutes
    known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    left = sorted(set(range(options.pieces)) - {one["piece"] for one in known})
    if left:
        with running() as server, local_fleet() as fleet:
            for number in range(options.nodes):
                fleet.add(f"n{number}", {"fake": options.seats})
            while left and time.monotonic() < until:
                made = Piece(fleet, server, options, left.pop(0)).run()
                known.append(made)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(made) + "\n")
                print(f"piece {made['piece']}: {json.dumps(made)}", file=sys.stderr, flush=True)
    found = _summed(known)
    print(json.dumps(found) if options.json else "\n".join(f"{name}: {value}" for name, value in found.items()))
    bad = found["lost"] or found["double"] or found["wrong"] or found["exports that differ"]
    return 1 if bad else 3 if left else 0


def _summed(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    faults: Counter[str] = Counter()
    for one in pieces:
        faults.update(one["faults"])
    names = ("evaluations", "lost", "double", "wrong", "seconds", "ended by itself")
    return {
        "pieces": len(pieces),
        **{name: round(sum(one[name] for one in pieces), 1) for name in names},
        "exports that differ": sum(not one["export equals one machine's"] for one in pieces),
        "faults": sum(faults.values()),
        "by kind": dict(faults),
    }
