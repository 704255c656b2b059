"""Prints the table of docs/ablation.md: the engine author against plain islands on artificial landscapes.

python tests/agents/compare_authors.py [SEEDS]
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "search"))

from landscape import SPACE, Choice, Judge, begin, microseconds, source, write

from hipwright.agents.engine_author import EngineAuthor
from hipwright.archive import Archive
from hipwright.records import Evaluation, Program
from hipwright.search import EngineSource

RUGGED = {
    "map:a": Choice(("block", "lanes", "columns"), "block", "structure"),
    "map:b": Choice(("scalar", "vector"), "scalar", "structure"),
    "row_cache:a": Choice(("registers", "reload"), "registers", "structure"),
    "fuse": Choice((True, False), True, "structure"),
    "BLOCK": Choice((64, 128, 256, 512, 1024), 256),
    "ROW_BLOCK": Choice((64, 128, 256, 512, 1024), 256),
    "LANES": Choice((4, 8, 16, 32), 32),
    "COLUMNS": Choice((16, 32, 64), 32),
    "VEC": Choice((1, 2, 4, 8), 4),
}


def rugged(c: Mapping[str, Any]) -> float:
    """A landscape with interacting choices and a best far from the default, as in real spaces."""
    time = 10.0 if c["fuse"] else 14.0
    mapping = c["map:a"]
    if mapping == "block":
        time *= 1.3 + 0.1 * abs((64, 128, 256, 512, 1024).index(c["ROW_BLOCK"]) - 1)
    elif mapping == "lanes":
        time *= 1.0 + 0.15 * abs((4, 8, 16, 32).index(c["LANES"]) - 1)
    else:
        time *= 1.8 + 0.2 * abs((16, 32, 64).index(c["COLUMNS"]) - 2)
    time *= 1.1 if c["row_cache:a"] == "reload" and mapping != "lanes" else 1.0
    if c["map:b"] == "vector":
        time *= 0.8 + 0.08 * abs((1, 2, 4, 8).index(c["VEC"]) - 1)
    return time * (1.0 + 0.05 * abs((64, 128, 256, 512, 1024).index(c["BLOCK"]) - 3))


class RuggedJudge(Judge):
    """Judges the rugged landscape: some combinations give wrong values, some do not compile."""

    def evaluate(self, program: Program) -> Evaluation:
        c = json.loads(program.text)
        if c["map:b"] == "vector" and c["VEC"] == 8 and c["BLOCK"] >= 512:
            return self._record(program, "compile_error", fault="candidate", message="too many registers")
        if c["map:a"] == "lanes" and c["LANES"] == 4 and c["row_cache:a"] == "registers":
            return self._record(program, "wrong_value", fault="candidate", message="element 1: 2, expected 3")
        width = c["VEC"] if c["map:b"] == "vector" else 1
        features = {"memory_level": width / 8, "compute_level": c["BLOCK"] / 1024, "parallelism_level": 0.5}
        return self._record(program, "pass", score=round(rugged(c), 6), features=features)


PLACES: dict[str, tuple[Mapping[str, Choice], Callable[[], Judge], float]] = {
    "toy": (SPACE, Judge, 10.0),
    "rugged": (RUGGED, RuggedJudge, 8.0),
}
GOOD = {"toy": {"vector": 4, "fuse": True}, "rugged": {"map:a": "lanes", "map:b": "vector", "VEC": 2}}
POOR = {"toy": {"vector": 1, "BLOCK": 1024}, "rugged": {"map:a": "columns", "VEC": 8, "BLOCK": 64}}
ARMS: dict[str, dict[str, Any] | None] = {
    "plain islands": None,
    "engine": {},
    "without failure_memory": {"without": ["failure_memory"]},
    "without screener": {"without": ["screener"]},
    "with good neighbours": {"likely": GOOD},
    "with poor neighbours": {"likely": POOR},
}


def found(place: str, agents: dict[str, Any] | None, budget: int, seed: int) -> float:
    """The best score that one run found."""
    space, judge, _ = PLACES[place]
    with tempfile.TemporaryDirectory() as home, Archive(Path(home)) as archive:
        engine: Any = EngineSource(space, write)
        settings: dict[str, Any] = {}
        if agents is not None:
            agents = dict(agents)
            if "likely" in agents:
                agents |= {"neighbours": ["n"], "choices": {"n": agents.pop("likely")[place]}}
            settings = {"agents": agents}
            engine = EngineAuthor(engine, agents, static_check=lambda program: "")
        result = begin(archive, judge(), budget=budget, seed=seed, settings=settings, source=engine)
        assert result.evaluation is not None and result.evaluation.score is not None
        return result.evaluation.score


def interval(ratios: np.ndarray) -> tuple[float, float, float]:
    """The geometric mean and its 95 % bootstrap interval over seeds."""
    logs = np.log(ratios)
    means = np.random.default_rng(0).choice(logs, (2000, logs.size)).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(np.exp(logs.mean())), float(np.exp(low)), float(np.exp(high))


if __name__ == "__main__":
    seeds = int(sys.argv[1]) if sys.argv[1:] else 60
    assert source().space is SPACE and microseconds({}) == PLACES["toy"][2]
    for place in PLACES:
        for budget in (12, 24, 48):
            table = {name: [found(place, arm, budget, seed) for seed in range(seeds)] for name, arm in ARMS.items()}
            base = np.array(table["plain islands"])
            for name, scores in table.items():
                ratio, low, high = interval(np.array(scores) / base)
                print(
                    f"{place} {budget} | {name} | {np.mean(scores):.2f} | {ratio:.3f} [{low:.3f}, {high:.3f}]",
                    flush=True,
                )
