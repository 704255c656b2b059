"""Writes an archive of many runs, by the archive's own calls: texts are made up, their sizes are a real search's.

A run of a small example has 3.6 kB an evaluation and 5.2 kB a program (docs/archive.md); so have these.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from hipwright.archive import Archive, Evaluated, Finished, LogEntry, Proposed
from hipwright.archive.database import Blob, StoredEvent, blobs_of
from hipwright.records import (
    Build,
    Decision,
    Evaluation,
    Expansion,
    Program,
    Run,
    Status,
    TargetResult,
    Task,
    Verdict,
    Workload,
)

PROPOSALS = 333
"""Of a run; with its first and last event it has 1,001."""
EVENTS = 3 * PROPOSALS + 2
_OPERATORS = (
    *("relu", "gelu", "silu", "sigmoid", "tanh", "softmax", "log_softmax", "layer_norm", "rms_norm", "batch_norm"),
    *("linear", "matmul", "bmm", "conv1d", "conv2d", "conv3d", "max_pool2d", "avg_pool2d", "cumsum", "sum", "mean"),
    *("amax", "argmax", "topk", "embedding", "gather", "scatter_add", "cat", "transpose", "permute", "einsum", "sort"),
    *("cross_entropy", "kl_div", "mse_loss", "dropout", "group_norm", "instance_norm", "pixel_shuffle", "attention"),
)


@dataclass(frozen=True)
class Made:
    """A run to write. rows: its events as stored; blobs: its task and programs."""

    run: Run
    rows: list[StoredEvent]
    blobs: list[Blob]


def made_runs(events: int, tasks: int, seed: int = 0) -> Iterator[Made]:
    """Runs with at least so many events together, over so many tasks."""
    rng = random.Random(seed)
    known = [made_task(number, rng) for number in range(tasks)]
    for number in range(-(-events // EVENTS)):
        yield _made_run(number, known[number % tasks], rng)


def made_task(number: int, rng: random.Random) -> Task:
    """A task of some operators, about 1.5 kB."""
    lines = [f"        x = torch.nn.functional.{name}(x)" for name in rng.sample(_OPERATORS, 3 + number % 9)]
    lines += [f"        # {rng.randbytes(40).hex()}" for _ in range(10)]
    source = (
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        + "\n".join(lines)
        + f"\n        return x\n\ndef get_inputs():\n    return [torch.randn({rng.randrange(1, 4096)}, 1024)]\n"
    )
    return Task(name=f"task_{number}", source=source, workloads=(Workload(name="given"),))


def write(archive: Archive, made: Made) -> None:
    """Stores a run."""
    archive.database.put(made.blobs)
    archive.database.restore(made.run.id, made.run.to_json(), made.rows)


def _made_run(number: int, task: Task, rng: random.Random) -> Made:
    name = f"20260101-{number:06d}-{number % 65536:04x}"
    run = Run(id=name, task=task.key, targets=("gfx942", "cpu"), budget=PROPOSALS, policy="islands", seed=number)
    entries = [LogEntry("run_started", -1, {"run": run.to_dict(), "task_name": task.name, "fingerprint": "f" * 40})]
    programs = [_program(number, n, rng) for n in range(PROPOSALS)]
    best, best_score = 0, 10.0  # the first passes, so that there is one
    for n, program in enumerate(programs):
        passed, score = n == 0 or rng.random() < 0.7, round(rng.uniform(10, 1000), 3) if n else best_score
        entries.append(_proposed(programs, n, rng))
        entries.append(_evaluated(task, program, n, score if passed else None, rng))
        decision = Decision(number=n, program=program.key, kept=passed, best=n == best)
        entries.append(LogEntry("decided", n, decision.to_dict()))
    finished = Finished(reason="budget", best=programs[best].key, number=best, score=best_score, evaluations=PROPOSALS)
    entries.append(LogEntry("finished", -1, finished.to_dict()))
    blobs = blobs_of([task, *programs])
    return Made(run, [_row(seq, entry, 1.7e9 + 1000 * number + seq) for seq, entry in enumerate(entries)], blobs)


def _proposed(programs: list[Program], n: int, rng: random.Random) -> LogEntry:
    parents = (programs[rng.randrange(n)].key,) if n else ()
    expansion = Expansion(number=n, operator="mutate", parents=parents, action={"choices": {"BLOCK": 256}})
    choices = {"BLOCK": rng.choice((64, 128, 256)), "layout": "rows", "call:linear": "library"}
    found = Proposed(expansion=expansion, round=n // 8, program=programs[n].key, choices=choices)
    return LogEntry("proposed", n, found.to_dict())


def _evaluated(task: Task, program: Program, n: int, score: float | None, rng: random.Random) -> LogEntry:
    status: Status = "wrong_value" if score is None else "pass"
    verdict = Verdict(status=status, evidence={"checks": _CHECKS})
    builds = [Build(target=name, ok=True, blob=f"{rng.getrandbits(80):x}", seconds=1.0) for name in ("gfx942", "cpu")]
    results = {build.target: TargetResult(target=build.target, build=build) for build in builds}
    results["cpu"] = msgspec.structs.replace(results["cpu"], verdict=verdict)
    found = Evaluation(
        task=task.key,
        program=program.key,
        status=status,
        fault="candidate" if score is None else None,
        targets=results,
        seconds=1.0,
        score=score,
        score_kind="none" if score is None else "estimate",
        coverage=1.0,
    )
    return LogEntry("evaluated", n, Evaluated(evaluation=found).to_dict(), f"{program.key}/{n}")


_CHECKS = [{"workload": f"given_{i}", "output": 0, "elements": 65536, "worst": i / 7} for i in range(45)]
_LOADS = "\n".join(f"    float v{i} = a[i + {37 * i % 4096}] * {i / 13:.6f}f;" for i in range(110))


def _program(run: int, n: int, rng: random.Random) -> Program:
    kernel = f'extern "C" __global__ void kernel_{run}_{n}(const float* a, float* out, int n) {{\n'
    kernel += f"    int i = blockIdx.x * {rng.randrange(4096)} + threadIdx.x;\n{_LOADS}\n"
    kernel += "    if (i < n) out[i] = v0;\n}\n"
    plan = f"def run(a):\n    return launch(kernel_{run}_{n}, a)\n"
    return Program(text=f"# program {run}/{n}\nHIP = r'''\n{kernel}'''\n\n{plan}")


def _row(seq: int, entry: LogEntry, clock: float) -> StoredEvent:
    text = msgspec.json.encode(entry.data, order="deterministic").decode()
    return StoredEvent(seq, entry.kind, entry.number, text, clock, entry.cache_key)
