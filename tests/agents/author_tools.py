"""Test tools: views built by hand, a scripted client, and the real evaluator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hipwright.agents.base import PromptLimits, Tools
from hipwright.agents.llm_author import LlmAuthor
from hipwright.archive import Archive, Proposed
from hipwright.errors import HipwrightError
from hipwright.evaluation.pipeline import Evaluator
from hipwright.llm.records import ModelAnswer, Request
from hipwright.records import (
    Build,
    Decision,
    Estimate,
    Evaluation,
    Expansion,
    KernelResources,
    Program,
    TargetResult,
    Task,
    TensorSpec,
    Verdict,
    Workload,
)
from hipwright.search import Proposal, ProposalRequest, SearchView, Trial
from hipwright.task import open_task
from hipwright.verify import Oracle
from tests import warm

REFERENCE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return torch.softmax(x * self.gain, dim=-1)
"""
TASK = Task(
    name="soft",
    source=REFERENCE,
    workloads=(Workload(name="given", specs=(TensorSpec(dtype="float32", shape=(64, 500)),)),),
    provenance="/home/somebody/soft.py",
)


def program(mark: str, guard: str = "if (i < n) ") -> Program:
    """A well-formed program; `mark` distinguishes programs."""
    return Program(
        text=f"""# {mark}
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void scale_{mark}(const float* x, float* y, long n) {{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    {guard}y[i] = x[i];
}}
'''

def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scale_{mark}[cdiv(x.numel(), 256), 256](x, y, x.numel())
    return y
"""
    )


def answer_with(written: Program, words: str = "One change.") -> str:
    return f"{words}\n\n```python\n{written.text}```\n"


def passed(written: Program, microseconds: float, **estimate: Any) -> Evaluation:
    """A verified program with an estimate on gfx942."""
    kernel = KernelResources(
        name="scale",
        vgpr=18,
        sgpr=20,
        occupancy=8,
        widest_vmem_bytes=4,
        vmem_bytes=8,
        instructions={"valu": 30, "vmem_load": 1, "vmem_store": 1},
    )
    row = {
        "kind": "kernel",
        "name": "scale",
        "seconds": microseconds * 1e-6,
        "bytes": 256000.0,
        "reread_bytes": 0.0,
        "memory_seconds": 0.9e-6 * microseconds,
        "issue_seconds": 0.2e-6 * microseconds,
        "bandwidth_efficiency": 0.3,
        "resident_waves_per_cu": 32,
        "bound": "memory",
    }
    detail = estimate.pop("detail", (row,))
    found = Estimate(
        target="gfx942", microseconds=microseconds, bound="memory", roofline_fraction=0.2, detail=tuple(detail)
    )
    build = Build(target="gfx942", ok=True, kernels=(estimate.pop("kernel", kernel),))
    return Evaluation(
        task=TASK.key,
        program=written.key,
        status="pass",
        targets={
            "cpu": TargetResult(target="cpu", verdict=Verdict(status="pass", worst_error=0.1)),
            "gfx942": TargetResult(target="gfx942", build=build, estimate=found),
        },
        coverage=1.0,
        score=microseconds,
        score_kind="estimate",
        seconds=1.5,
        environment="/usr/lib/clang",
    )


def failed(
    written: Program, status: str = "wrong_value", message: str = "output[3] is 1, expected 2", **kw: Any
) -> Evaluation:
    """A program that the cpu's verdict rejected."""
    verdict = Verdict(status=status, fault="candidate", message=message, **kw)  # type: ignore[arg-type]
    return Evaluation(
        task=TASK.key,
        program=written.key,
        status=status,  # type: ignore[arg-type]
        fault="candidate",
        message=message,
        targets={"cpu": TargetResult(target="cpu", verdict=verdict)},
    )


def trial(number: int, written: Program, evaluation: Evaluation, operator: str = "translate", **kw: Any) -> Trial:
    notes, action, best = kw.pop("notes", {"author": "llm"}), kw.pop("action", {}), kw.pop("best", False)
    proposed = Proposed(
        expansion=Expansion(number=number, operator=operator, action=action),
        round=number // 4,
        program=written.key,
        notes=notes,
    )
    kept = evaluation.passed
    return Trial(proposed, evaluation, Decision(number=number, program=written.key, kept=kept, best=best))


Script = Callable[[Request], "str | Exception"]


@dataclass
class FakeClient:
    """Answers from a script and keeps every request; thread-safe like the real one."""

    script: Script
    requests: list[Request] = field(default_factory=list)
    together: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, request: Request) -> ModelAnswer:
        with self.lock:
            self.requests.append(request)
        told = self.script(request)
        if isinstance(told, Exception):
            raise told
        return ModelAnswer(request=request.key, text=told)

    def ask_all(self, requests: Sequence[Request]) -> list[ModelAnswer | HipwrightError]:
        self.together.append(len(requests))
        found: list[ModelAnswer | HipwrightError] = []
        for request in requests:
            try:
                found.append(self.ask(request))
            except HipwrightError as error:
                found.append(error)
        return found

    def of(self, role: str) -> list[Request]:
        return [request for request in self.requests if request.role == role]

    def texts(self) -> list[str]:
        """The requests as they would be sent, by proposal and index."""
        ordered = sorted(self.requests, key=lambda request: (request.number, request.index))
        return [request.to_json() for request in ordered]


class OneModel:
    def choose(self, role: str, rng: Any) -> str:
        return f"openai:{role}-{rng.randrange(4)}"


def text_of(request: Request) -> str:
    return "\n".join(message.text for message in request.messages)


def source(archive: Archive, script: Script, **kw: Any) -> tuple[LlmAuthor, FakeClient]:
    client = FakeClient(script)
    tools = Tools(
        client=client,
        lineup=OneModel(),
        task=TASK,
        graph_text=REFERENCE,
        targets=("cpu", "gfx942"),
        archive=archive,
        **{"limits": PromptLimits(prompt_tokens=40_000), **kw},
    )
    return LlmAuthor(tools), client


def ask(
    view: SearchView, operator: str, number: int = 20, parents: Sequence[Program] = (), **kw: Any
) -> ProposalRequest:
    expansion = Expansion(number=number, operator=operator, parents=tuple(one.key for one in parents), **kw)
    return ProposalRequest(expansion, tuple(Proposal(program=one) for one in parents), view)


@contextmanager
def evaluator(task: Path) -> Iterator[Evaluator]:
    """The real verifier on the cpu target."""
    with open_task(task, warm.host()) as handle:
        yield Evaluator(handle, Oracle(handle, seed=20), warm.candidates(), warm.builds(), ("cpu",))
