"""Each vector instruction against NumPy: special values, modifiers, and that inactive lanes keep their values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.cases_clamped import CLAMPED
from tests.sim.cases_half import HALVES
from tests.sim.cases_more import MORE
from tests.sim.cases_vector import VECTOR, Case
from tests.sim.harness import Simulated
from tests.sim.values import same, view, words

SCALARS = np.array([0x070D0400, 0, 0, 0, 0, 0, 0, 0], np.uint32)
ROWS = {"d": 2, "q": 2}


@pytest.mark.parametrize(
    "case", [*VECTOR, *MORE, *HALVES, *CLAMPED], ids=lambda case: " ".join(case.line.splitlines()[0].split()[:1])
)
def test_vector(simulated: Simulated, case: Case) -> None:
    inputs = [words(kind, 7 * i + 1) for i, kind in enumerate(case.kinds)]
    results = {"d": 2, "q": 2, "m": 2, "ff": 2}.get(case.result, 1)
    given = np.concatenate(inputs) if inputs else None
    snippet = "v_mov_b32_e32 v20, 0\nv_mov_b32_e32 v21, 0\n" + case.line
    found = simulated.run(snippet, given, SCALARS, results=results, target=case.target)
    with np.errstate(all="ignore"):
        expected = case.expected(*(view(rows, kind) for rows, kind in zip(inputs, case.kinds, strict=True)))
    for row, made in zip(found, _rows(expected, case.result), strict=True):
        kind = "f" if case.result in ("f", "ff") else case.result
        good = same(row, made, kind, case.ulps)
        if case.result == "d":
            good |= np.isnan(view(found, "d")) & np.isnan(expected)
        lane = int(np.argmin(good))
        assert good.all(), f"lane {lane}: {row[lane]:#x}, expected {made[lane]:#x}"


def _rows(expected: np.ndarray, kind: str) -> list[np.ndarray]:
    if kind in ("d", "q"):
        pairs = expected.view(np.uint64)
        return [pairs.astype(np.uint32), (pairs >> np.uint64(32)).astype(np.uint32)]
    if kind in ("ff", "m"):
        return [row.view(np.uint32) for row in expected]
    return [expected.view(np.uint32) if expected.dtype == np.float32 else expected.astype(np.uint32)]
