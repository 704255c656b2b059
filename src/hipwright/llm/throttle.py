"""The concurrency limit of a provider and the waits between attempts; without clock or threads."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass
class Throttle:
    """Additive increase, multiplicative decrease, as TCP's congestion window (Chiu and Jain, 1989).

    limit: open calls, between 1 and `most`. It grows by one after `limit` successes in a row and halves on overload
    (429, 5xx). Calls that were open together fail together, which halves it only once: a call carries the epoch in
    which it began, and failures of an earlier epoch are ignored.
    """

    most: int
    limit: int = 0
    active: int = 0
    epoch: int = 0
    successes: int = 0

    def __post_init__(self) -> None:
        self.most = max(1, self.most)
        self.limit = min(max(1, self.limit or self.most), self.most)

    @property
    def free(self) -> bool:
        """Whether one more call may begin."""
        return self.active < self.limit

    def begin(self) -> int:
        """Opens a call; returns its epoch, for `overloaded`."""
        self.active += 1
        return self.epoch

    def end(self) -> None:
        """Closes a call, whatever its outcome."""
        self.active -= 1

    def succeeded(self) -> None:
        """Records an answered call."""
        self.successes += 1
        if self.successes >= self.limit < self.most:
            self.limit += 1
            self.successes = 0

    def overloaded(self, epoch: int) -> None:
        """Records an overload response to a call that began in `epoch`."""
        self.successes = 0
        if epoch == self.epoch:
            self.limit = max(1, self.limit // 2)
            self.epoch += 1


def backoff(failures: int, rng: random.Random, *, base: float = 0.5, most: float = 60.0) -> float:
    """Seconds to wait after `failures` in a row: full jitter, uniform in [0, base * 2**failures], at most `most`.

    Full jitter spreads calls that failed together over the whole window (M. Brooker, "Exponential Backoff And Jitter").
    """
    return rng.uniform(0.0, min(most, base * 2.0 ** min(failures, 30)))


def asked_wait(seconds: float, failures: int, rng: random.Random) -> float:
    """Seconds to wait when the provider named a time: at least that, plus jitter that spreads the calls."""
    return seconds + backoff(failures, rng, base=0.1, most=5.0)
