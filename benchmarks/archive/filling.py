"""Runs to fill an archive with, as a search stores them: texts are made up, their sizes are a real search's.

A run of a small example has 3.6 kB an evaluation and 5.2 kB a program (docs/archive.md); so have these.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from hipwright.archive import Evaluated, Finished, Proposed
from hipwright.archive.database import Blob, StoredEvent
from hipwright.records import (
    Build,
    Decision,
    Evaluation,
    Expansion,
    Program,
    Record,
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
    """A run to write. rows: its events as stored; task, programs: its records as stored."""

    run: Run
    rows: list[StoredEvent]
    task: Blob
    programs: list[Blob]


def made_runs(events: int, tasks: int, seed: int = 0) -> Iterator[Made]:
    """Runs with at least so many events together, over so many tasks; each is the same in an archive of any size."""
    rng = random.Random(seed)
    known = [made_task(number, rng) for number in range(tasks)]
    stored = [_blob(task, task.key) for task in known]
    for number in range(-(-events // EVENTS)):
        at = number % tasks
        yield _made_run(number, known[at].name, stored[at], random.Random(f"{seed}/{number}"))


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


def _made_run(number: int, task_name: str, task: Blob, rng: random.Random) -> Made:
    name = f"20260101-{number:06d}-{number % 65536:04x}"
    run = Run(id=name, task=task.key, targets=("gfx942", "cpu"), budget=PROPOSALS, policy="islands", seed=number)
    events: list[tuple[str, int, object, str | None]] = []
    begun = {"run": run.to_dict(), "task_name": task_name, "fingerprint": "f" * 40}
    events.append(("run_started", -1, begun, None))
    programs = [_program(number, n, rng) for n in range(PROPOSALS)]
    keys = [program.key for program in programs]
    best, best_score = 0, 10.0  # the first passes, so that there is one
    for n, key in enumerate(keys):
        passed, score = n == 0 or rng.random() < 0.7, round(rng.uniform(10, 1000), 3) if n else best_score
        events.append(("proposed", n, _proposed(keys, n, rng), None))
        evaluated = _evaluated(task.key, key, score if passed else None, rng)
        events.append(("evaluated", n, evaluated, f"{key}/{n}"))
        events.append(("decided", n, Decision(number=n, program=key, kept=passed, best=n == best), None))
    finished = Finished(reason="budget", best=keys[best], number=best, score=best_score, evaluations=PROPOSALS)
    events.append(("finished", -1, finished, None))
    rows = [
        StoredEvent(seq, kind, n, _text(data), 1.7e9 + 1000 * number + seq, cache_key)
        for seq, (kind, n, data, cache_key) in enumerate(events)
    ]
    return Made(run, rows, task, [_blob(program, key) for program, key in zip(programs, keys, strict=True)])


def _text(data: object) -> str:
    """An event's data as the archive encodes it: of a record, the fields in their names' order."""
    return msgspec.json.encode(data, order="sorted").decode()


def _blob(record: Record, key: str) -> Blob:
    return Blob(key, type(record).__name__, record.to_json())


def _proposed(keys: Sequence[str], n: int, rng: random.Random) -> Proposed:
    parents = (keys[rng.randrange(n)],) if n else ()
    expansion = Expansion(number=n, operator="mutate", parents=parents, action={"choices": {"BLOCK": 256}})
    choices = {"BLOCK": rng.choice((64, 128, 256)), "layout": "rows", "call:linear": "library"}
    predicted = {"author": "engine", "compiles": 0.95, "passes": n * 37 % 1000 / 1000, "better": n * 11 % 100 / 100}
    return Proposed(expansion=expansion, round=n // 8, program=keys[n], choices=choices, notes={"screener": predicted})


def _evaluated(task: str, program: str, score: float | None, rng: random.Random) -> Evaluated:
    status: Status = "wrong_value" if score is None else "pass"
    verdict = Verdict(status=status, evidence={"checks": _CHECKS})
    builds = [Build(target=name, ok=True, blob=f"{rng.getrandbits(80):x}", seconds=1.0) for name in ("gfx942", "cpu")]
    results = {build.target: TargetResult(target=build.target, build=build) for build in builds}
    results["cpu"] = msgspec.structs.replace(results["cpu"], verdict=verdict)
    found = Evaluation(
        task=task,
        program=program,
        status=status,
        fault="candidate" if score is None else None,
        targets=results,
        seconds=1.0,
        score=score,
        score_kind="none" if score is None else "estimate",
        coverage=1.0,
    )
    return Evaluated(evaluation=found)


_CHECKS = [{"workload": f"given_{i}", "output": 0, "elements": 65536, "worst": i / 7} for i in range(45)]
_LOADS = "\n".join(f"    float v{i} = a[i + {37 * i % 4096}] * {i / 13:.6f}f;" for i in range(110))


def _program(run: int, n: int, rng: random.Random) -> Program:
    kernel = f'extern "C" __global__ void kernel_{run}_{n}(const float* a, float* out, int n) {{\n'
    kernel += f"    int i = blockIdx.x * {rng.randrange(4096)} + threadIdx.x;\n{_LOADS}\n"
    kernel += "    if (i < n) out[i] = v0;\n}\n"
    plan = f"def run(a):\n    return launch(kernel_{run}_{n}, a)\n"
    return Program(text=f"# program {run}/{n}\nHIP = r'''\n{kernel}'''\n\n{plan}")
