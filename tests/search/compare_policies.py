"""Prints the table of docs/search.md: the best time that each registered policy finds at equal budget.

python tests/search/compare_policies.py [SEEDS [POLICY...]]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from landscape import begin

from hipwright.archive import Archive
from hipwright.search import POLICIES

BUDGETS = (16, 24, 40, 60)
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in POLICIES if name != "islands"},
    **{f"islands, {count}": ("islands", {"islands": count}) for count in (1, 2, 3)},
}


def found(policy: str, settings: dict[str, Any], budget: int, seeds: int) -> list[float]:
    """The best time of each seed, microseconds."""
    scores = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as home, Archive(Path(home)) as archive:
            result = begin(archive, policy=policy, budget=budget, seed=seed, settings=settings)
            assert result.evaluation is not None and result.evaluation.score is not None
            scores.append(result.evaluation.score)
    return scores


def cell(scores: list[float]) -> str:
    """The mean, and half the width of its 95 % interval."""
    return f"{statistics.mean(scores):.2f} ± {1.96 * statistics.stdev(scores) / len(scores) ** 0.5:.2f}"


if __name__ == "__main__":
    seeds = int(sys.argv[1]) if sys.argv[1:] else 60
    print("| policy |", *(f"{budget} |" for budget in BUDGETS))
    print("|---|" + "---|" * len(BUDGETS))
    for name, arm in ((name, arm) for name, arm in ARMS.items() if not sys.argv[2:] or name in sys.argv[2:]):
        print(f"| {name} |", *(f"{cell(found(*arm, budget, seeds))} |" for budget in BUDGETS), flush=True)
