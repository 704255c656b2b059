"""The frozen records of hipwright, hashed by content (docs/design.md).

Every stage is a function from one of these to the next. `Record.key` is the first 20 hex digits of a SHA-256 over the
record's type name, `VERSION` and canonical JSON, so equal content has an equal key on every machine.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any, Literal, TypeVar

import msgspec

from hipwright.software_gpu import is_software

VERSION = 1

Fault = Literal["candidate", "task", "toolchain", "device", "provider", "service"]
Status = Literal[
    "pass",
    "parse_error",
    "compile_error",
    "launch_error",
    "timeout",
    "out_of_bounds",
    "bad_output_spec",
    "wrong_value",
    "nondeterministic",
    "input_mutated",
    "hack",
    "untrusted",
    "impossible",
    "degenerate",
    "unscorable",
]
CandidateForm = Literal["program", "modelnew"]
Stage = Literal["load", "parse", "lint", "build", "launch", "verify", "measure"]

R = TypeVar("R", bound="Record")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen value with canonical JSON and a content key."""

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        return msgspec.json.encode(self, order="deterministic").decode()

    def to_dict(self) -> dict[str, Any]:
        """The record as plain JSON types."""
        plain: dict[str, Any] = msgspec.to_builtins(self, order="deterministic")
        return plain

    @property
    def key(self) -> str:
        """20 hex digits that identify this content."""
        return content_key(type(self).__name__, self.to_json())

    @classmethod
    def from_json(cls: type[R], text: str | bytes) -> R:
        """Reads `to_json`. Raises msgspec.ValidationError for a bad document."""
        _know(cls)
        return msgspec.json.decode(text, type=cls)

    @classmethod
    def from_dict(cls: type[R], plain: dict[str, Any]) -> R:
        """Reads `to_dict`. Raises msgspec.ValidationError for a bad document."""
        _know(cls)
        return msgspec.convert(plain, type=cls)


_known: set[type] = set()
_knowing = threading.Lock()


def _know(cls: type[Record]) -> None:
    """Lets msgspec inspect a type in one thread: two threads that decode it for the first time at once crash the
    process (seen with 0.22, which uses the incomplete description of a nested type).
    """
    if cls not in _known:
        with _knowing:
            msgspec.json.Decoder(cls)
            _known.add(cls)


def content_key(*parts: str | bytes) -> str:
    """20 hex digits over the parts, each length-prefixed, and `VERSION`."""
    digest = hashlib.sha256(f"hipwright/{VERSION}".encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:20]


# ---------------------------------------------------------------- tasks and programs


class TensorSpec(Record, frozen=True, kw_only=True):
    """Shape, dtype (torch's name without the prefix, e.g. "bfloat16") and strides (in elements) of one tensor."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] = ()


class Workload(Record, frozen=True, kw_only=True):
    """One set of inputs of a task.

    origin: "given" (get_inputs), "group" (get_input_groups[index]) or "derived" (hipwright changed the shapes).
    shapes: for a derived workload, the shape of each tensor leaf in order; None keeps the file's own.
    """

    name: str
    origin: Literal["given", "group", "derived"] = "given"
    index: int = 0
    shapes: tuple[tuple[int, ...], ...] | None = None
    specs: tuple[TensorSpec, ...] = ()


class TolerancePolicy(Record, frozen=True, kw_only=True):
    """The rule for correct values: "strict" (fp64 reference, budget c * honest error) or "kernelbench" (allclose)."""

    mode: Literal["strict", "kernelbench"] = "strict"
    c: float = 4.0


class Task(Record, frozen=True, kw_only=True):
    """A PyTorch reference in the KernelBench form, with its workloads."""

    name: str
    source: str
    workloads: tuple[Workload, ...]
    tolerance: TolerancePolicy = TolerancePolicy()
    provenance: str = ""


class Program(Record, frozen=True, kw_only=True):
    """A candidate in one of two forms: HIP source and launch plan ("program"), or a ModelNew file with host code.

    knobs: the chosen values; others take their default. `form` is "lane" in JSON.
    """

    form: CandidateForm = msgspec.field(name="lane", default="program")
    text: str
    knobs: dict[str, int] = {}


# ---------------------------------------------------------------- build, verdict, timing


class KernelResources(Record, frozen=True, kw_only=True):
    """What one kernel of a code object uses. Bytes for lds and scratch; counts for registers and spills.

    occupancy: waves per SIMD; instructions: static counts by class (valu, salu, vmem_load, vmem_store, lds, smem,
    mfma, trans, branch, barrier, wave, other); vmem_bytes: bytes a lane moves by one execution of each vector memory
    instruction, summed over the static instructions.
    """

    name: str
    vgpr: int = 0
    agpr: int = 0
    sgpr: int = 0
    lds_bytes: int = 0
    scratch_bytes: int = 0
    spills: int = 0
    occupancy: int = 0
    max_workgroup: int = 1024
    instructions: dict[str, int] = {}
    vmem_bytes: int = 0
    widest_vmem_bytes: int = 0


class Build(Record, frozen=True, kw_only=True):
    """One program for one target. `blob` is the content hash of the code object in the build cache, "" if it failed."""

    target: str
    ok: bool
    blob: str = ""
    isa_blob: str = ""
    kernels: tuple[KernelResources, ...] = ()
    device_math: Literal["ocml", "own", "host", ""] = ""
    log: str = ""
    seconds: float = 0.0
    cached: bool = False


class Verdict(Record, frozen=True, kw_only=True):
    """The decision on one program on one target, with the evidence.

    worst_error: the largest error divided by its tolerance (<= 1 passes); None when nothing was compared. workloads:
    those that are evidence; skipped: {workload: why} (degenerate, guarded out, too costly).
    """

    status: Status
    fault: Fault | None = None
    stage: Stage = "verify"
    family: str = ""
    workload: str = ""
    worst_error: float | None = None
    message: str = ""
    evidence: dict[str, Any] = {}
    workloads: tuple[str, ...] = ()
    skipped: dict[str, str] = {}
    checks: dict[str, Any] = {}

    @property
    def passed(self) -> bool:
        """True only for status "pass"."""
        return self.status == "pass"


class Estimate(Record, frozen=True, kw_only=True):
    """A static estimate, never a measurement: microseconds a call by the model in docs/toolchain.md."""

    target: str
    microseconds: float
    bound: Literal["memory", "compute", "latency", "launch"]
    roofline_fraction: float
    detail: tuple[dict[str, Any], ...] = ()


class Versus(Record, frozen=True, kw_only=True):
    """The candidate against one baseline ("eager", "compile", ...), in pairs taken in turn. Milliseconds a call.

    speedup: baseline / candidate on the device, the median over the pairs; interval: 95 %. samples_ms and baseline_ms
    have one entry a pair. latency_speedup: the same ratio of end-to-end latencies."""

    baseline: str
    speedup: float
    interval: tuple[float, float]
    samples_ms: tuple[float, ...]
    baseline_ms: tuple[float, ...]
    pairs: int
    stopped: str = ""
    latency_speedup: float | None = None


class Timing(Record, frozen=True, kw_only=True):
    """One program timed on a device. Milliseconds for one call.

    policy: how calls were launched, on both sides. median_ms: device time; latency_ms: by the host's clock; clock_gap:
    their relative difference. floor_ms: the roofline (measure.roofline); own_time: share in the program's own kernels.
    missing: baselines that it has not, and why. prepare_ms: packing weights."""

    device: str
    architecture: str
    policy: Literal["graph", "stream"] = "stream"
    median_ms: float
    latency_ms: float | None = None
    versus: dict[str, Versus] = {}
    missing: dict[str, str] = {}
    clock_gap: float | None = None
    floor_ms: float | None = None
    bound: Literal["memory", "compute", ""] = ""
    roofline_fraction: float | None = None
    own_time: float | None = None
    prepare_ms: float | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether the device is software."""
        return is_software(self.device)


class TargetResult(Record, frozen=True, kw_only=True):
    """One target's build, verdict, estimate and timing; `why_none` has the reason for each missing one."""

    target: str
    build: Build | None = None
    verdict: Verdict | None = None
    estimate: Estimate | None = None
    timing: Timing | None = None
    why_none: dict[str, str] = {}


class Evaluation(Record, frozen=True, kw_only=True):
    """task x program x targets. `status` is the worst over the targets; `score` is an estimate in microseconds.

    coverage: 0 to 1, see docs/program.md; library: the operators that the plan leaves to the library, without views,
    with their modelled share of the reference's cost; own_time: share of device time, None where nothing was timed."""

    task: str
    program: str
    status: Status
    fault: Fault | None = None
    message: str = ""
    targets: dict[str, TargetResult] = {}
    coverage: float = 0.0
    library: dict[str, float] = {}
    own_time: float | None = None
    score: float | None = None
    score_kind: Literal["estimate", "measured", "simulated", "none"] = "none"
    features: dict[str, float] = {}
    seconds: float = 0.0
    environment: str = ""

    @property
    def passed(self) -> bool:
        """True only for status "pass"."""
        return self.status == "pass"


# ---------------------------------------------------------------- search


class Expansion(Record, frozen=True, kw_only=True):
    """What a search tries next: operator, parents and action. `number` counts proposals in a run from 0."""

    number: int
    operator: str
    parents: tuple[str, ...] = ()
    inspirations: tuple[str, ...] = ()
    action: dict[str, Any] = {}
    seed: int = 0


class Decision(Record, frozen=True, kw_only=True):
    """Whether a program was kept, and why."""

    number: int
    program: str
    kept: bool
    best: bool = False
    reason: str = ""


class Run(Record, frozen=True, kw_only=True):
    """One search: everything that determines its outcome."""

    id: str
    task: str
    targets: tuple[str, ...]
    budget: int
    policy: str
    seed: int
    settings: dict[str, Any] = {}


class Event(Record, frozen=True, kw_only=True):
    """One appended fact. kind: run_started, proposed, evaluated, decided, finished, interrupted, resumed, ..."""

    run: str
    seq: int
    kind: str
    number: int = -1
    data: dict[str, Any] = {}
    clock: float = 0.0
