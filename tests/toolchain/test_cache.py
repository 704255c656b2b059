"""The build cache under concurrent processes, damage and clean-ups."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from hipwright.records import Build
from hipwright.toolchain.cache import BuildCache

CONTENTS = [bytes([n]) * 200_000 for n in range(8)]


def fill(folder: str, _: int) -> list[str]:
    cache = BuildCache(folder)
    names = [cache.put(data) for data in CONTENTS]
    for number, name in enumerate(names):
        cache.store(f"key{number}", Build(target="gfx942", ok=True, blob=name))
        assert cache.get(name) == CONTENTS[number]
        loaded = cache.load(f"key{number}")
        assert loaded is not None and loaded.blob == name
    return names


def test_many_processes_write_the_same_at_once(tmp_path: Path) -> None:
    # spawn: a fork of this process inherits its threads' locks and its signal handlers, and may hang
    with multiprocessing.get_context("spawn").Pool(6) as pool:
        results = pool.starmap(fill, [(str(tmp_path), n) for n in range(24)])
    assert all(names == results[0] for names in results)
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".new-")]
    assert len([path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]) == len(CONTENTS)


def test_a_build_comes_back_marked_as_cached(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    build = Build(target="gfx942", ok=True, blob=cache.put(b"code"), log="a warning", seconds=1.5)
    cache.store("k1", build)
    assert cache.load("k1") == Build.from_dict(build.to_dict() | {"cached": True})
    assert cache.load("k2") is None


def test_a_scope_finds_what_was_built_within_it(tmp_path: Path) -> None:
    cache, other = BuildCache(tmp_path), BuildCache(tmp_path)
    build = Build(target="gfx942", ok=True, blob=cache.put(b"code"))
    cache.store("k1", build)
    other.scope = "/an/arm"
    assert other.load("k1") is None
    other.store("k1", Build(target="gfx942", ok=False))
    assert (found := other.load("k1")) is not None and not found.ok
    assert (found := cache.load("k1")) is not None and found.ok
    cache.scope = "/an/arm"
    assert (found := cache.load("k1")) is not None and not found.ok


def test_a_failed_build_is_remembered_too(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.store("k1", Build(target="gfx942", ok=False, log="error"))
    loaded = cache.load("k1")
    assert loaded is not None and not loaded.ok and loaded.log == "error"


def test_damage_is_a_miss_not_a_wrong_answer(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    blob = cache.put(b"code")
    cache.store("k1", Build(target="gfx942", ok=True, blob=blob))
    cache.path(blob).write_bytes(b"cod3")
    with pytest.raises(KeyError):
        cache.get(blob)
    assert cache.load("k1") is None  # the damaged blob is gone, so the build is made again
    assert cache.get(cache.put(b"code")) == b"code"


def test_a_torn_memo_is_a_miss(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.store("k1", Build(target="gfx942", ok=False))
    memo = next((tmp_path / "builds").rglob("k1.json"))
    memo.write_text(memo.read_text()[:20])
    assert cache.load("k1") is None


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "ab", "Z" * 64])
def test_names_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeyError):
        BuildCache(tmp_path).get(name)
