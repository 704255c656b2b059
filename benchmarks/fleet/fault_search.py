"""The command that `python -m benchmarks fleet-faults` kills: a search judged by a fleet, begun or gone on with.

    python -m benchmarks.fleet.fault_search ARCHIVE RUN ADDRESS BUDGET SEED SECONDS

Prints its events as JSON lines: "seat" and "link" with their process, "evaluated", "away" and "over".
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from benchmarks.fleet.number_search import FACTORY, ROUND, TASK, FarJudge, NumbersSource, new_run
from hipwright import search
from hipwright.archive import Archive
from hipwright.errors import HipwrightError
from hipwright.fleet.records import SeatWork
from hipwright.fleet.session import FleetSession

PATIENCE_S = 120.0
_SAYING = threading.Lock()


def say(kind: str, data: dict[str, Any]) -> None:
    """Prints an event."""
    with _SAYING:
        print(json.dumps({"kind": kind, "pid": data.get("pid"), "device": data.get("device")}), flush=True)


def main(url: str, name: str, address: str, budget: int, seed: int, seconds: float) -> int:
    """Begins the run, or goes on with it. Exit code 0 when it is finished, 3 by a fault of the machine."""
    work = SeatWork(factory=FACTORY, architecture="fake", attempts=12)
    try:
        with Archive(url) as archive, FleetSession(address, work, listener=say, patience_s=PATIENCE_S) as session:
            how: Any = {"evaluator": FarJudge(session, seconds), "source": NumbersSource(), "workers": ROUND}
            if name in {one.id for one in archive.runs()}:
                search.resume(archive, name, TASK, **how, listener=say)
            else:
                search.run(archive, new_run(name, budget, seed), TASK, **how, listener=say)
    except HipwrightError as error:
        print(error.message, file=sys.stderr, flush=True)
        return 3
    say("over", {})
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])))
