"""The `--target` option."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.errors import BadInput
from hipwright.targets import CPU, OFFLINE, TARGETS


def default() -> tuple[str, ...]:
    """AMD machine code if its compiler is installed, and the best target that runs here: a GPU, else the CPU."""
    from hipwright.sandbox import gpu_count
    from hipwright.toolchain import clang

    runs = next((target for target in TARGETS.gpus if gpu_count(target)), CPU)
    return (*TARGETS.default_offline, runs.name) if runs.is_host or clang.present() else (runs.name,)


def choose(names: Sequence[str] | None) -> tuple[str, ...]:
    """The requested targets, each once, in order; the default ones for none.

    Raises BadInput for an unknown name, and for a GPU that this machine does not have.
    """
    from hipwright.sandbox import gpu_count

    chosen = tuple(dict.fromkeys(names)) if names else default()
    for name in chosen:
        target = TARGETS[name]
        if target.is_gpu and not gpu_count(target):
            without = ", ".join((*OFFLINE, CPU.name))
            raise BadInput(
                f"target {name}: no {target.maker} GPU here",
                hint=f"`hipwright doctor` says what this machine has; without a GPU: {without}",
            )
    return chosen
