"""What the usual route costs: ModelNew files built with load_inline's own headers. Needs a GPU machine with nvcc.

    python benchmarks/plain_route.py PROGRAMS.jsonl [--count N]

Exports programs as ModelNew files and builds each the three ways: as a program (NVRTC), with the lean headers, and with
torch's headers as `load_inline` does. Prints seconds, every build cold.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hipwright.evaluate.gpu import open_gpu
from hipwright.program import modelnew, parse
from hipwright.program.modelnew_build import prepare
from hipwright.records import Program
from hipwright.toolchain.cache import BuildCache

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Build and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("programs", type=Path)
    options.add_argument("--count", type=int, default=3)
    chosen = options.parse_args()
    rows = [json.loads(line) for line in chosen.programs.read_text().splitlines()]
    rows = rows[:: max(1, len(rows) // chosen.count)][: chosen.count]
    with tempfile.TemporaryDirectory() as folder, open_gpu("cuda", 0, BuildCache(folder)) as gpu:

        def built(row: dict[str, str]) -> str:
            program = Program(text=row["text"], knobs=row["knobs"])  # type: ignore[arg-type]
            parsed = parse(program.text)
            text = modelnew.export(program, parsed, (ROOT / row["task"]).read_text())
            seconds = {"program": gpu.build(parsed.hip, parsed.defines(program.knobs)).seconds}
            for way in ("lean", "real"):
                made = prepare(text, target="cuda", arch=gpu.architecture, cache=gpu.cache, ways=(way,))
                seconds[way] = made.seconds
            told = ", ".join(f"{way} {spent:.2f} s" for way, spent in seconds.items())
            return f"{row['task']}: {told}"

        with ThreadPoolExecutor(chosen.count) as pool:
            for line in pool.map(built, rows):
                print(line, flush=True)


if __name__ == "__main__":
    main()
