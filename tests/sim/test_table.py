"""The page of instructions lists what the executor has."""

from __future__ import annotations

from benchmarks.simulated.instructions import PAGE, supported


def test_the_page_is_complete() -> None:
    listed = {
        word for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ") for word in line.split()
    }
    missing = [name for name in supported() if name not in listed]
    assert not missing, "write it anew: python -m benchmarks sim-instructions"
