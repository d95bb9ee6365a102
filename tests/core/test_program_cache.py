"""Compiled programs are kept in a folder that nobody else can write to, unless that is not wanted."""

from __future__ import annotations

import sys

import pytest

from tether.core import program_cache


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """As at the start of a process in which nobody has told JAX anything."""
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "TETHER_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    yield monkeypatch
    # What was set for JAX is for this test only.
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)


def test_programs_are_kept_for_their_owner_alone(fresh, tmp_path):
    folder = program_cache.keep_programs()
    assert folder.parent == tmp_path / "tether" / "programs"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert program_cache.os.environ["JAX_COMPILATION_CACHE_DIR"] == str(folder)
    fresh.delenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")


def test_nothing_is_kept_where_it_is_not_wanted_or_others_can_write(fresh, tmp_path):
    fresh.setenv("TETHER_CACHE", "off")
    assert program_cache.keep_programs() is None
    fresh.setenv("TETHER_CACHE", str(tmp_path / "open"))
    program_cache._folder().mkdir(parents=True)
    program_cache._folder().chmod(0o777)
    assert program_cache.keep_programs() is None
    (tmp_path / "file").write_text("")
    fresh.setenv("TETHER_CACHE", str(tmp_path / "file"))
    assert program_cache.keep_programs() is None


def test_what_jax_was_told_stays(fresh, tmp_path):
    fresh.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "mine"))
    assert program_cache.keep_programs() == tmp_path / "mine"

    class Config:
        jax_compilation_cache_dir = None

        def update(self, name, value):
            setattr(self, name, value)

    class Jax:
        config = Config()

    fresh.delenv("JAX_COMPILATION_CACHE_DIR")
    fresh.setitem(sys.modules, "jax", Jax)
    folder = program_cache.keep_programs()
    assert Jax.config.jax_compilation_cache_dir == str(folder)
    fresh.setenv("TETHER_CACHE", str(tmp_path / "other"))
    assert program_cache.keep_programs() == folder  # told already
