"""The contract of call logs. A test class inherits it and defines how to open one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hipwright.errors import OutOfBudget, ProviderError
from hipwright.llm.call_log import CallLog, RecordedCallLog, RefusedCall
from hipwright.llm.records import Message, ModelAnswer, Request, Reserved, Usage


def request(number: int = 0, index: int = 0, text: str = "write it", **more: object) -> Request:
    fields = {"role": "translator", "model": "openai:gpt-4o", **more}
    return Request(number=number, index=index, messages=(Message(role="user", text=text),), **fields)  # type: ignore[arg-type]


def reserved(asked: Request, cost: float = 0.25, tokens: int = 1000) -> Reserved:
    return Reserved(request=asked, cost_usd=cost, tokens=tokens)


def answer(asked: Request, text: str = "done", cost: float = 0.125, **more: object) -> ModelAnswer:
    fields = {"usage": Usage(input_tokens=7, output_tokens=3, cached_tokens=2), "priced": True, "seconds": 1.5, **more}
    return ModelAnswer(request=asked.key, text=text, cost_usd=cost, **fields)  # type: ignore[arg-type]


ODD = "é\n\r\u2028\u202e\x00\t\"'\\ </script> \U0001f600 ```"


class CallLogContract:
    """The subclass defines `open(home)`, which reopens the log of that folder."""

    keeps = True  # whether a log that is opened again holds what was written

    def open(self, home: Path) -> RecordedCallLog:
        raise NotImplementedError

    def again(self, home: Path, log: RecordedCallLog) -> CallLog:
        return self.open(home) if self.keeps else log

    def test_an_answer_comes_back_bit_for_bit(self, tmp_path: Path) -> None:
        asked = request(text=ODD, temperature=0.7)
        given = answer(asked, text=ODD, cost=0.1, finish="length", model="gpt-4o-2024", attempts=3)
        log = self.open(tmp_path)
        assert log.find(asked.key) is None
        log.reserve(reserved(asked))
        assert log.find(asked.key) is None
        log.settle(given)
        for each in (log, self.again(tmp_path, log)):
            assert each.find(asked.key) == given
            assert each.answers() == [given] and each.lost() == []
            assert each.find(request(text=ODD, temperature=0.8).key) is None

    def test_what_was_reserved_and_not_settled_is_lost(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        calls = [reserved(request(n), cost=n / 8, tokens=n) for n in range(4)]
        for call in calls:
            log.reserve(call)
        log.settle(answer(calls[2].request))
        for each in (log, self.again(tmp_path, log)):
            assert each.lost() == [calls[0], calls[1], calls[3]]

    def test_of_several_attempts_the_last_was_answered(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        asked = request()
        attempts = [reserved(asked, cost=cost) for cost in (0.5, 0.25, 0.75)]
        for attempt in attempts:
            log.reserve(attempt)
        log.settle(answer(asked))
        for each in (log, self.again(tmp_path, log)):
            assert each.lost() == attempts[:2]

    def test_an_attempt_that_was_not_billed_is_taken_back(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        first, second, other = reserved(request(), 0.5), reserved(request(), 0.25), reserved(request(1))
        for attempt in (first, other, second):
            log.reserve(attempt)
        log.release(second)
        for each in (log, self.again(tmp_path, log)):
            assert each.lost() == [first, other]
        again = self.again(tmp_path, log)
        again.release(first)
        again.release(first)  # there is none left
        again.reserve(second)
        again.settle(answer(request()))
        assert self.again(tmp_path, again).lost() == [other]  # type: ignore[arg-type]

    def test_the_first_answer_stays(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        asked = request()
        for text in ("first", "second"):
            log.reserve(reserved(asked))
            log.settle(answer(asked, text))
        for each in (log, self.again(tmp_path, log)):
            found = each.find(asked.key)
            assert found is not None and found.text == "first"
            assert [a.text for a in each.answers()] == ["first", "second"]  # both were paid for
            assert each.lost() == []

    def test_nothing_is_settled_that_was_not_reserved(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        log.reserve(reserved(request(0)))
        with pytest.raises(ValueError, match="never reserved"):
            log.settle(answer(request(1)))
        assert self.again(tmp_path, log).answers() == []

    def test_a_refusal_is_kept_until_the_call_is_answered(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        over = RefusedCall.of(request(0), OutOfBudget("no money", hint="raise it"))
        denied = RefusedCall.of(request(1), ProviderError("no such model"))
        for refused in (over, denied):
            log.admit(refused.request)
            log.refuse(refused)
        again = self.again(tmp_path, log)
        assert again.refusals() == [over, denied] and again.lost() == [] and again.answers() == []  # type: ignore[attr-defined]
        error = over.exception()
        assert isinstance(error, OutOfBudget) and (error.message, error.hint) == ("no money", "raise it")
        error = denied.exception()
        assert isinstance(error, ProviderError) and not error.retryable
        again.reserve(reserved(request(0)))
        again.settle(answer(request(0)))
        assert self.again(tmp_path, again).refusals() == [denied]  # type: ignore[arg-type, attr-defined]

    def test_threads_write_at_once(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        failures: list[BaseException] = []

        def worker(name: int) -> None:
            try:
                for n in range(6):
                    asked = request(n, name)
                    log.reserve(reserved(asked))
                    if n % 2:
                        log.settle(answer(asked, f"{name}/{n}"))
                        assert log.find(asked.key) is not None
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=worker, args=(name,)) for name in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        again = self.again(tmp_path, log)
        assert {a.text for a in again.answers()} == {f"{name}/{n}" for name in range(6) for n in (1, 3, 5)}
        assert len(again.lost()) == 18 and len(again.answers()) == 18
