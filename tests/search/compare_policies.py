"""The table of docs/search.md: what each policy finds on the made-up landscape at equal budget.

python tests/search/compare_policies.py [SEEDS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from landscape import begin

from hipwright.archive import Archive

ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "best_of_n": ("best_of_n", {}),
    **{f"{count} island(s)": ("islands", {"islands": count}) for count in (1, 2, 3)},
}


def mean_found(policy: str, settings: dict[str, Any], budget: int, seeds: int) -> float:
    scores = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as home, Archive(Path(home)) as archive:
            result = begin(archive, policy=policy, budget=budget, seed=seed, settings=settings)
            assert result.evaluation is not None and result.evaluation.score is not None
            scores.append(result.evaluation.score)
    return statistics.mean(scores)


if __name__ == "__main__":
    seeds = int(sys.argv[1]) if sys.argv[1:] else 60
    for budget in (16, 24, 48, 96):
        print(budget, *(f"{name} {mean_found(*arm, budget, seeds):.2f}" for name, arm in ARMS.items()), sep="  ")
