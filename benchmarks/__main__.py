"""The entry of all benchmarks: `python -m benchmarks NAME ...`; without a NAME it lists them (docs/bench.md)."""

from __future__ import annotations

import os
import sys

from benchmarks import registry
from benchmarks.registry import COMMANDS
from hipwright.errors import HipwrightError


def main(argv: list[str] | None = None) -> int:
    """Runs a benchmark. Returns its exit code: 0 when all is done, 2 for bad input; each command tells its others."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print("python -m benchmarks NAME ...; NAME --help tells the options of one\n")
        print("\n".join(f"{each:16} {registry.summary(each)}" for each in sorted(COMMANDS)))
        return 0
    if name not in COMMANDS:
        print(f"error: no benchmark {name!r} (known: {', '.join(sorted(COMMANDS))})", file=sys.stderr)
        return 2
    try:
        module = registry.load(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("benchmarks", "hipwright"):
            raise
        print(f"error: {error.name} is not installed (pip install -e '.[test]')", file=sys.stderr)
        return 2
    options = registry.parser(name, module.__doc__ or "")
    module.add_options(options)
    try:
        return int(module.run(options.parse_args(rest)))
    except HipwrightError as error:
        hint = f" ({error.hint})" if error.hint else ""
        print(f"error: {error.message}{hint}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    if sys.argv[1:2] == ["suite"]:
        os._exit(code)  # a worker of the suite that hangs in a system call must not keep the run from ending
    sys.exit(code)
