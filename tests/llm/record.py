"""Re-records the conversations of tests/llm/recordings: `.venv/bin/python -m tests.llm.record`.

Needed whenever a prompt changes, for a request is found by its whole text. The model is the scripted one of the command
line's own tests: wrong from the reference alone, right once it is shown the verifier's evidence.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from hipwright.archive import Archive, export

FOLDER = Path(__file__).parent / "recordings"
REPO = Path(__file__).parents[2]


def main() -> None:
    sys.path.insert(0, str(REPO / "tests" / "cli"))
    from test_optimize_llm import optimize, reply

    from tests.llm.server import LocalProvider

    for wire in ("openai", "anthropic"):
        with tempfile.TemporaryDirectory() as folder, LocalProvider(reply) as provider:
            home = Path(folder) / "home"
            done = optimize(
                home,
                "--llm",
                provider.spec(wire),
                "--llm-share",
                1,
                "--budget",
                6,
                "--target",
                "gfx942",
                "--target",
                "cpu",
            )
            assert done.returncode == 0, done.stderr
            with Archive(home, create=False) as archive:
                (FOLDER / f"{wire}.jsonl").write_text(export(archive, "latest"))
        print(f"recorded {wire}")


if __name__ == "__main__":
    main()
