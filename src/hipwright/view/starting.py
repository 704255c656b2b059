"""Searches that are started from the browser, where `--allow-start` lets it: each is a command of its own.

A request can name a task file below one folder, targets, a budget and a seed, and nothing else: no models, no option
that weakens the sandbox, no folder to write to. A started search ends with the server, and is resumed as any other.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hipwright.api import targets
from hipwright.api.runs.child import ChildCommand
from hipwright.archive import Place
from hipwright.errors import BadInput, HipwrightError

AT_ONCE = 2
"""Searches that run at a time."""
MOST_BUDGET = 10_000
LISTED = 400
_RUN = re.compile(r"(?:starting|resuming) run (?P<run>\S+)")


@dataclass
class StartedSearch:
    """One search that was started here. state: "running", "ended", "failed" or "stopped"; run: "" until it has one."""

    number: int
    task: str
    words: tuple[str, ...]
    state: str = "running"
    says: str = "starting"
    run: str = ""
    child: ChildCommand = field(default_factory=ChildCommand, repr=False)

    def told(self, kind: str, data: Mapping[str, Any]) -> None:
        """Hears of the command's progress."""
        if kind == "stage":
            self.says = str(data["text"])[:200]
            if found := _RUN.search(self.says):
                self.run = found["run"]


class Starter:
    """Starts and stops searches. home: of the archive; root: the folder of the tasks.

    secret: what every form has as `csrf`, another one for each server.
    """

    def __init__(
        self,
        home: Place,
        root: Path,
        run: Callable[[ChildCommand, Sequence[str], Place, Any], Mapping[str, Any]] = ChildCommand.run,
    ) -> None:
        self.home, self.root = home, root.resolve()
        self.secret = secrets.token_urlsafe(24)
        self._run = run
        self._lock = threading.Lock()
        self._started: list[StartedSearch] = []

    @property
    def started(self) -> list[StartedSearch]:
        """All searches of this server, the last first."""
        with self._lock:
            return list(reversed(self._started))

    def state(self) -> list[list[Any]]:
        """Another value after each change."""
        return [[one.number, one.state, one.says, one.run] for one in self.started]

    def is_secret(self, given: str) -> bool:
        """Whether a form is one of this server's pages."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.secret.encode())

    def tasks(self) -> list[str]:
        """Python files below the root that may be tasks, by their path from there."""
        found = []
        for path in sorted(self.root.glob("*.py")) + sorted(self.root.glob("*/*.py")):
            if not any(part.startswith(".") for part in path.relative_to(self.root).parts):
                found.append(str(path.relative_to(self.root)))
            if len(found) >= LISTED:
                break
        return found

    def start(self, form: Mapping[str, str]) -> StartedSearch:
        """Starts a search. form: task, targets (with spaces), budget, seed. Raises BadInput for what it may not be."""
        path = self._task(form.get("task", ""))
        chosen = targets.choose(form.get("targets", "").split() or None)
        words = ["optimize", str(path), "--budget", str(_number(form, "budget", 40, 1, MOST_BUDGET))]
        words += ["--seed", str(_number(form, "seed", 0, 0, 2**31 - 1))]
        words += [word for name in chosen for word in ("--target", name)]
        with self._lock:
            if sum(one.state == "running" for one in self._started) >= AT_ONCE:
                raise BadInput(f"{AT_ONCE} searches run already", hint="stop one, or wait for its end")
            one = StartedSearch(len(self._started), str(path.relative_to(self.root)), tuple(words))
            self._started.append(one)
        threading.Thread(target=self._follow, args=(one,), name=f"search {one.number}", daemon=True).start()
        return one

    def stop(self, number: int) -> None:
        """Ends a search; what it has stays, and `hipwright resume` goes on. Raises BadInput for one that is not."""
        found = next((one for one in self.started if one.number == number), None)
        if found is None:
            raise BadInput(f"no search {number} was started here")
        if found.state == "running":
            found.state = "stopped"
            found.child.abort()

    def close(self) -> None:
        """Ends every search that still runs."""
        for one in self.started:
            self.stop(one.number)

    def _task(self, given: str) -> Path:
        path = (self.root / given).resolve()
        if not given or not path.is_relative_to(self.root) or path.suffix != ".py" or not path.is_file():
            raise BadInput(f"{given!r} is no Python file below {self.root}", hint="choose one of the list")
        return path

    def _follow(self, one: StartedSearch) -> None:
        try:
            found = self._run(one.child, one.words, self.home, one.told)
            one.run = str(found.get("run") or one.run)
            state, says = "ended", str(found.get("status", ""))
        except HipwrightError as error:
            state, says = "failed", error.message[:300]
        if one.state == "running":
            one.says, one.state = says, state


def _number(form: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = form.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 12 and low <= int(text) <= high):
        raise BadInput(f"{name} {text!r} is not a number from {low} to {high}")
    return int(text)
