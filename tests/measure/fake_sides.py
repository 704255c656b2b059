"""A fake GPU with its own clock, and sides that run on it: honest ones, and one for each way to forge a clock."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hipwright.device.timed_side import LaunchMode, Policy, TimedBlock


@dataclass
class Machine:
    """Time, drift and spikes shared by all sides. drift: relative, a wave; throttle: slows down for good over 2 s."""

    seed: int = 0
    drift: float = 0.0
    throttle: float = 0.0
    now_ms: float = 0.0
    pending_ms: float = 0.0
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.phase = self.rng.random() * 7
        self.period_ms = self.rng.uniform(30, 600)

    def pace(self) -> float:
        wave = self.drift * math.sin(self.now_ms / self.period_ms + self.phase)
        return 1 + wave + self.throttle * min(self.now_ms / 2000, 1)


@dataclass
class FakeSide:
    """call_ms: true device time. bias: of this process. noise: relative, a block; alike: correlation of neighbours.

    lie: "stream" does `share` of the work on another stream; "clock" reports `share` less by both of its clocks;
    "early" reports the true time but replies when `share` of the work is left; "both" reports less and replies early;
    "empties" is "stream" that also lengthens its empty blocks; "zero" reports zero.
    """

    machine: Machine
    name: str
    call_ms: float
    bias: float = 0.0
    noise: float = 0.0
    alike: float = 0.0
    spikes: float = 0.0
    lie: Literal["", "stream", "clock", "early", "both", "empties", "zero"] = ""
    share: float = 0.0
    can_capture: bool = True
    latency_ms: float = 0.0
    jitter_ms: float = 0.01
    busy_ms: float = 0.0
    cache_bytes: int = 0
    slot_bytes: int = 1
    slots: int = 1
    last: float = 0.0
    turn: int = 0
    policy: Policy = "graph"

    def __post_init__(self) -> None:
        self.cached: OrderedDict[int, None] = OrderedDict()

    def prepare(self, iterations_hint: int) -> LaunchMode:
        self.policy = "graph" if self.can_capture else "stream"
        return LaunchMode(self.policy, "" if self.can_capture else "it synchronises", self.call_ms)

    def stream(self, why: str) -> None:
        self.policy = "stream"

    def block(self, calls: int) -> TimedBlock:
        self.machine.log.append(f"{self.name}{calls}" if calls else "")
        work = self._work(calls)
        shift = self.share * work if self.lie in ("stream", "empties") else 0.0
        device, host = 0.0015 + work - shift, 0.012 + work + self._jitter() / 5
        if self.lie == "empties" and not calls:
            host += 0.5
        wall = host + 0.07 + self._jitter() + float(self.machine.rng.exponential(self.busy_ms)) * self.machine.pace()
        if self.lie in ("clock", "both"):
            device, host = device - self.share * work, host - self.share * work
        if self.lie in ("early", "both"):
            wall -= self.share * work
            self.machine.pending_ms += self.share * work
        if self.lie == "zero" and calls:
            device = 0.0
        self.machine.now_ms += wall
        return TimedBlock(calls, device, host, wall)

    def latency(self, calls: int) -> tuple[float, ...]:
        self.machine.now_ms += calls * self.latency_ms
        return tuple(self.latency_ms * self.machine.pace() + self._jitter() / 5 for _ in range(calls))

    def _work(self, calls: int) -> float:
        """True milliseconds that a block keeps the device, with the unfinished work of others."""
        g, pending = self.machine.rng, self.machine.pending_ms
        if not calls:
            return 0.0
        self.machine.pending_ms = 0.0
        self.last = self.alike * self.last + g.normal(0, self.noise) if self.noise else 0.0
        spike = 1 + g.random() if g.random() < self.spikes else 1.0
        each = sum(self._call() for _ in range(calls)) if self.cache_bytes else calls * self.call_ms
        return each * math.exp(self.bias + self.last) * self.machine.pace() * spike + pending

    def _call(self) -> float:
        """One call on the next slot: three times as fast when the slot is still in the (LRU) cache."""
        slot, self.turn = self.turn % self.slots, self.turn + 1
        hit = slot in self.cached
        self.cached[slot] = None
        self.cached.move_to_end(slot)
        while len(self.cached) * self.slot_bytes > self.cache_bytes:
            self.cached.popitem(last=False)
        return self.call_ms / 3 if hit else self.call_ms

    def _jitter(self) -> float:
        return float(self.machine.rng.exponential(self.jitter_ms))
