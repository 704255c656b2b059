"""Packing of sequences into rows and batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hipwright.train.rl.packing import ALIGN, batches, pack, rows

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=60)


@given(LENGTHS, st.integers(1, 64))
def test_every_sequence_is_in_one_row_that_holds_it(lengths: list[int], room: int) -> None:
    packed = rows(lengths, room)
    assert sorted(index for row in packed for index in row) == list(range(len(lengths)))
    assert all(len(row) == 1 or sum(lengths[i] for i in row) <= room for row in packed)


@given(LENGTHS, st.integers(1, 64), st.integers(1, 300))
def test_batches_respect_the_token_limit(lengths: list[int], room: int, tokens: int) -> None:
    packed = rows(lengths, room)
    found = batches(packed, lengths, tokens)
    assert sorted(map(tuple, (row for batch in found for row in batch))) == sorted(map(tuple, packed))
    for batch in found:
        held = [sum(lengths[i] for i in row) for row in batch]
        assert len(batch) == 1 or (sum(held) <= tokens and len(batch) * max(held) <= 1.25 * tokens)


def test_rows_are_filled() -> None:
    lengths = [100 + (37 * i) % 300 for i in range(500)]
    packed = rows(lengths, 1024)
    assert sum(lengths) / (1024 * len(packed)) > 0.97


def test_the_layout() -> None:
    pairs = [([10, 11], [12, 13]), ([20], [21]), ([30, 31, 32], [33])]
    packed, order = pack(pairs, [[1, 0], [2]], "cpu")
    assert order == [1, 0, 2] and packed.counts == (1, 2, 1)
    assert packed.tokens[:, :7].tolist() == [[20, 21, 10, 11, 12, 13, 0], [30, 31, 32, 33, 0, 0, 0]]
    assert packed.positions[:, :6].tolist() == [[0, 1, 0, 1, 2, 3], [0, 1, 2, 3, 0, 1]]
    assert packed.tokens.shape == (2, ALIGN) and not packed.owners[:, 6:].any()
    assert packed.targets.tolist() == [21, 12, 13, 33]
    assert packed.tokens.flatten()[packed.states].tolist() == [20, 11, 12, 32]
    seen = packed.mask()[0, 0, :, :6].int().tolist()
    assert seen[:3] == [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]]
    assert seen[5] == [0, 0, 1, 1, 1, 1]
    assert packed.mask().any(-1).all()  # padding attends to something, so that no softmax is empty
