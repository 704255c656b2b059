"""The contract of work that many share: leases, and results that are stored once."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from archive_contract import ArchiveContract, a_run, evaluated, program

from hipwright.archive import Lease, LogEntry
from hipwright.errors import BadInput


class WholeContract(ArchiveContract):
    """What both databases pass: the archive's contract and that of leases."""

    def test_a_piece_of_work_is_leased_to_one_at_a_time(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as one, self.open(tmp_path) as two:
            one.begin_run(a_run())
            first = one.lease("r1", 0, "one", 60.0)
            assert first is not None and first.attempt == 1
            assert two.lease("r1", 0, "two", 60.0) is None and two.lease("r1", 1, "two", 60.0) is not None
            assert one.renew(first, 60.0) and one.renew(first, 0.0)  # given back
            second = two.lease("r1", 0, "two", 60.0)
            assert second is not None and second.attempt == 2
            assert not one.renew(first, 60.0), "an older attempt gets nothing back"
            assert two.deliver(second, [evaluated(0)], [program(0)]) is not None
            assert not two.renew(second, 60.0) and one.lease("r1", 0, "one", 60.0) is None

    def test_a_result_is_stored_once(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as one, self.open(tmp_path) as two:
            one.begin_run(a_run())
            late, prompt = one.lease("r1", 5, "one", 0.0), two.lease("r1", 5, "two", 60.0)
            assert late is not None and prompt is not None and (late.attempt, prompt.attempt) == (1, 2)
            stored = one.deliver(late, [evaluated(5, "k"), LogEntry("note")], [program(5)])
            assert stored is not None and [e.seq for e in stored] == [1, 2]  # the lease was over: it came first
            assert two.deliver(prompt, [evaluated(5, score=1.0)], [program(6)]) is None
            assert one.deliver(late, [evaluated(5, "k"), LogEntry("note")], [program(5)]) == stored
            assert two.events("r1")[1:] == stored and not two.has(program(6).key)
            for wrong in (Lease("r1", 5, 3), Lease("r1", 9, 1), Lease("none", 0, 1)):
                if wrong.number == 5:
                    assert two.deliver(wrong, [LogEntry("x")]) is None
                else:
                    with pytest.raises(BadInput, match="never leased"):
                        two.deliver(wrong, [LogEntry("x")])

    def test_many_workers_deliver_every_result_once(self, tmp_path: Path) -> None:
        count, failed = 30, []

        def work(who: int) -> None:
            rng = random.Random(who)
            try:
                with self.open(tmp_path) as archive:
                    for number in rng.sample(range(count), count):
                        lease = archive.lease("r1", number, f"worker {who}", 0.0)  # over at once: others take it too
                        for _ in range(2 if lease is not None else 0):
                            archive.deliver(lease, [LogEntry("evaluated", number, {"who": who})], [program(number)])
            except BaseException as error:
                failed.append(error)

        with self.open(tmp_path) as archive:
            archive.begin_run(a_run())
            threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            events = archive.events("r1", since=1)
            assert failed == [] and sorted(e.number for e in events) == list(range(count))

    def test_a_key_is_one_holders_until_it_is_given_up_or_over(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as one, self.open(tmp_path) as two:
            assert one.claim("k", "one", 60.0) and not two.claim("k", "two", 60.0) and two.claim("other", "two", 60.0)
            assert one.claim("k", "one", 60.0), "its holder makes it last"
            two.give_up("k", "two")
            assert not two.claim("k", "two", 60.0)
            one.give_up("k", "one")
            assert two.claim("k", "two", 0.0) and one.claim("k", "one", 60.0) and not two.claim("k", "two", 60.0)
            got = [0] * 8
            keys = [f"k{n}" for n in range(20)]

            def take(number: int) -> None:
                with self.open(tmp_path) as archive:
                    got[number] = sum(archive.claim(key, f"holder {number}", 60.0) for key in keys)

            threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sum(got) == len(keys)
