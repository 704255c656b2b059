"""Many rows with real programs and random figures, for tests of statistics and their page."""

from __future__ import annotations

import random

import msgspec

from hipwright.dataset.records import BuildSummary, Pair
from hipwright.records import Program
from tests.dataset.pair_sample import CORRECT, pair

FAMILIES = ("pointwise", "reduction", "normalise", "shape", "scan", "product", "pooling", "index", "loss", "compare")
SPLITS = ("train",) * 7 + ("unseen_shapes", "unseen_compositions", "deeper")
KINDS = ("engine", "variant", "variant", "variant", "negative", "step", "repair")
STATUSES = ("wrong_value", "wrong_value", "nondeterministic", "out_of_bounds", "compile_error", "timeout")


def many(count: int, seed: int = 1, text: str = "") -> list[Pair]:
    """`count` rows, seven a task."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        task, place = divmod(number, len(KINDS))
        own = random.Random(f"{seed} {task}")
        names = [f"{text}op_{int(own.expovariate(0.08))}" for _ in range(own.randint(1, 6))]
        kind = KINDS[place]
        us = 3 + own.lognormvariate(2.2, 1.1) * rng.choice((1.0, 1.0, 1.04, 1.3, 2.2, 0.8))
        build = BuildSummary(
            ok=rng.random() > 0.01,
            kernels=1,
            vgpr=rng.randint(8, 128),
            sgpr=rng.randint(10, 60),
            lds_bytes=rng.choice((0, 512, 4096)),
            spills=int(rng.random() < 0.02),
            occupancy=rng.choice((4, 8, 8, 10)),
        )
        name, base = own.choice(sorted(CORRECT.items()))
        more = {
            "task": f"{task:020d}",
            "task_name": f"{text}{base}_{task}",
            "operators": tuple(dict.fromkeys(names)),
            "families": tuple(dict.fromkeys(text + own.choice(FAMILIES) for _ in names)),
            "composition": "+".join(names),
            "dtype": own.choice(("float32", "float32", "float16", "bfloat16")),
            "split": own.choice(SPLITS),
            "difficulty": own.choice(("easy", "easy", "medium", "hard")),
            "builds": {"gfx942": build, "gfx950": build},
            "coverage": own.choice((1.0, 1.0, 1.0, 0.95, 0.7, 0.55, 0.3)),
            "program": Program(text=f"# {number}\n{pair(name, base).program.text}"),
        }
        if kind == "negative":
            more |= {"status": rng.choice(STATUSES), "estimate_us": {}}
        rows.append(msgspec.structs.replace(pair(name, base, kind=kind, us=us), **more))
    return rows
