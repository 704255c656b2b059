"""The digest of a tensor's bytes: one bit, one place, one seed make a difference, layout and device do not."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hipwright import digest as module
from hipwright.digest import digest, span

MASK = (1 << 64) - 1


def _splitmix(word: int) -> int:
    """An independent statement of the finaliser (Steele, Lea and Flood 2014)."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def _by_hand(raw: bytes, seed: int, block_words: int) -> int:
    golden, total = 0x9E3779B97F4A7C15, 0
    padded = raw + b"\0" * (-len(raw) % 8)
    for i in range(len(padded) // 8):
        word = int.from_bytes(padded[8 * i : 8 * i + 8], "little")
        key = _splitmix((i % block_words * golden + _splitmix(seed & MASK)) & MASK)
        place = _splitmix((seed + (i // block_words + 1) * golden) & MASK)
        total += _splitmix(((word ^ key) + place) & MASK)
    return _splitmix((total & MASK) ^ _splitmix(len(raw)))


@given(st.binary(max_size=200), st.integers(0, 2**63))
def test_is_what_plain_integers_say(raw: bytes, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_WORDS", 4)
        tensor = torch.tensor(list(raw), dtype=torch.uint8)
        assert digest(tensor, seed) == _by_hand(raw, seed, 4)


@given(st.data())
def test_every_bit_and_every_place_count(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 100))
    tensor = torch.randn(size, generator=torch.Generator().manual_seed(size))
    before = digest(tensor, 7)
    place, bit = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, 31))
    changed = tensor.clone()
    changed.view(torch.int32)[place] ^= torch.tensor(1 << bit).to(torch.int32)
    assert digest(changed, 7) != before
    assert digest(tensor, 8) != before
    assert digest(tensor.roll(1), 7) != before
    assert digest(tensor, 7) == before


def test_two_flipped_signs_do_not_cancel() -> None:
    tensor = torch.ones(64)
    seen = set()
    for i in range(63):
        flipped = tensor.clone()
        flipped[i : i + 2] *= -1
        seen.add(digest(flipped, 1))
    assert len(seen) == 63


def test_blocks_may_not_be_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_WORDS", 4)
    a, b = torch.arange(8.0), torch.arange(8.0, 16.0)
    assert digest(torch.cat([a, b]), 0) != digest(torch.cat([b, a]), 0)
    assert digest(torch.zeros(16), 0) != digest(torch.zeros(18), 0)


def test_a_span_is_the_storage_between_first_and_last_element() -> None:
    base = torch.arange(24, dtype=torch.int16)
    assert span(base[3:]).tolist() == span(base[3:].clone()).tolist()
    gaps = base.as_strided((2, 3), (10, 2), 1)
    assert span(gaps).numel() == 2 * (10 + 2 * 2 + 1)
    assert span(base[:1].expand(5)).numel() == 2
    assert span(torch.empty(0, 3)).numel() == 0
    assert digest(base[3:], 5) == digest(base[3:].clone(), 5)  # an offset is no difference, and no alignment is needed
    transposed = torch.arange(6.0).reshape(2, 3).t()
    assert span(transposed).view(torch.float32).tolist() == list(range(6))


@given(st.lists(st.binary(max_size=60), max_size=9), st.integers(0, 2**63))
def test_many_tensors_have_the_digests_of_each(raws: list[bytes], seed: int) -> None:
    """Small ones are mixed together, as far as there is room; larger ones by themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_WORDS", 8)
        patch.setattr(module, "_SMALL_WORDS", 4)
        tensors = [torch.tensor(list(raw), dtype=torch.uint8) for raw in raws]
        assert module.digests(tensors, seed) == [_by_hand(raw, seed, 8) for raw in raws]
