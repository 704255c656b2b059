"""Tests of which `make test` runs a part by turns: `python scripts/slowest.py JUNIT.xml` writes tests/slowest.txt.

JUNIT.xml is of a run of tests: `pytest -n 3 --junitxml=JUNIT.xml`. A line holds the seconds of all parameters of a test
function and its name; functions of which one parameter takes SECONDS are listed, except those of ALWAYS. Those that the
run left out keep their lines.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

SECONDS = 1.5
ALWAYS = (
    "acceptance/test_examples.py",
    "audit/test_audit.py::test_no_candidate_deceives_the_verifier",
    "benchmarks/test_corpora.py",
    "docs/",
)
"""Beginnings of tests that every run holds: the hostile programs, the examples, a sample of the corpora of other
people's modules, the commands of the pages."""
FILE = Path(__file__).resolve().parents[1] / "tests" / "slowest.txt"


def main(junit: str) -> int:
    """Writes the file."""
    found: dict[str, list[float]] = defaultdict(list)
    for case in ElementTree.parse(junit).iter("testcase"):
        path = case.attrib["classname"].replace(".", "/").removeprefix("tests/")
        if path.rpartition("/")[2][:1].isupper():  # a class of tests runs whole
            continue
        found[f"{path}.py::{case.attrib['name'].partition('[')[0]}"].append(float(case.attrib["time"]))
    kept = (line.split(maxsplit=1) for line in FILE.read_text().splitlines())
    slow = {name: float(seconds) for seconds, name in kept if name not in found}
    slow |= {name: sum(times) for name, times in found.items() if max(times) >= SECONDS and not name.startswith(ALWAYS)}
    FILE.write_text("".join(f"{slow[name]:.0f} {name}\n" for name in sorted(slow)))
    print(f"{len(slow)} tests of {sum(slow.values()):.0f} seconds, of {sum(map(sum, found.values())):.0f} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
