"""Graphs that share memory, replayed from several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from hipwright.api.live.graphed import GraphedProgram
from tests.api.live.test_graphed import WEIGHT, Recorder, Scaled, right


def test_a_graph_that_shares_memory_with_another_is_replayed_after_the_others_result_is_copied() -> None:
    made_, wrong = [], []

    class Shared(Recorder):
        def capture(self, device: torch.device, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
            replay, result = super().capture(device, call)
            made_.append(result[0][0])

            def spoils() -> None:
                for other in made_:
                    other.fill_(float("nan"))
                replay()
                time.sleep(0.001)  # another thread's turn

            return spoils, result

    graphs = Shared()
    programs = [GraphedProgram(Scaled(), graphs) for _ in range(3)]

    def work(fast: GraphedProgram) -> None:
        try:
            for _ in range(20):
                right(fast, torch.randn(3, 4), {"w": WEIGHT})
        except AssertionError as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(one,)) for one in programs]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong and [one.captures for one in programs] == [1, 1, 1]
