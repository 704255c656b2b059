"""A model's call that stops at each program of another process."""

from __future__ import annotations

import pytest
import torch

from hipwright.api.whole.exchange import Done, Exchange, RemoteProgram, Wanted
from hipwright.errors import CandidateError, GuardFailed

X, WEIGHT = torch.ones(2), torch.full((2,), 3.0)


def test_a_call_stops_at_each_program_and_sends_state_that_has_changed() -> None:
    exchange = Exchange()
    program = RemoteProgram(exchange, 4, "blocks.0")
    weight = WEIGHT.clone()

    def forward() -> torch.Tensor:
        first = program([X], {"w": weight})[0][0]
        second = program([first], {"w": weight})[0][0]
        weight.add_(1)
        return program([second], {"w": weight})[0][0]

    at = exchange.start(forward)
    sent = []
    while isinstance(at, Wanted):
        assert (at.region, at.part) == (4, "blocks.0")
        sent.append(at.state is not None)
        at = exchange.resume({"outputs": [at.inputs[0] * 2], "buffers": {}})
    assert sent == [True, False, True]
    assert torch.equal(at.value, X * 8)


@pytest.mark.parametrize(("answer", "error"), [("declined", GuardFailed), ("failed", CandidateError)])
def test_what_a_program_refuses_is_raised_in_the_model(answer: str, error: type[Exception]) -> None:
    exchange = Exchange()
    program = RemoteProgram(exchange, 0, "")
    assert isinstance(exchange.start(lambda: program([X], {})), Wanted)
    ended = exchange.resume({answer: "rows must be 4"})
    assert isinstance(ended, Done) and isinstance(ended.error, error) and "rows must be 4" in str(ended.error)
