"""A verdict lists the workloads that it does not include."""

from __future__ import annotations

from hipwright.records import Verdict
from hipwright.verify.cpu.skipped import too_long, too_many, unseen


def test_a_shape_that_nobody_ran_is_told_of() -> None:
    cpu = Verdict(
        status="pass",
        workloads=("61x31",),
        skipped={
            "given": too_many("8192000 elements"),
            "batch": too_long("about 9.0"),
            "61x31/tiny": "overflows",
            "7x5": "a guard refuses it",
        },
    )
    assert unseen([cpu]) == {
        "given": "8192000 elements are too many for the cpu target",
        "batch": "about 9.0 s on the cpu target; verified at smaller shapes",
    }
    assert unseen([cpu, Verdict(status="pass", workloads=("given", "batch"))]) == {}
    assert unseen([]) == {}
