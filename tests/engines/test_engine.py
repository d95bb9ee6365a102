"""Pieces give the same whatever computes them, and come after what they need."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from made_pieces import doubled
from tether.engines import aside
from tether.engines.engine import Local, run
from tether.engines.pieces import Piece, Store, decode, encode


def chain():
    return [
        Piece("one", partial(doubled, 1)),
        Piece("two", partial(doubled, 2), after=("one",)),
        Piece("three", partial(doubled, 3), after=("one", "two")),
        Piece("four", partial(doubled, 4)),
    ]


DONE = {"one": [2], "two": [4, [2]], "three": [6, [2], [4, [2]]], "four": [8]}


@pytest.mark.parametrize("kind", ["json", "pickle"])
def test_a_piece_is_given_the_contents_of_those_that_it_comes_after(kind, tmp_path):
    store = Store(tmp_path, kind)
    engine = Local()
    run(engine, chain(), store)
    assert {name: store.read(name) for name in DONE} == DONE
    assert list(engine.notes) == list(DONE)
    assert all(note.seconds >= 0.0 and note.memory > 0.0 for note in engine.notes.values())


@pytest.mark.slow
def test_several_processes_give_the_same(tmp_path):
    store = Store(tmp_path)
    run(Local(2), chain(), store)
    assert {name: store.read(name) for name in DONE} == DONE


def test_what_cannot_be_sent_is_computed_in_this_process(tmp_path):
    store, here = Store(tmp_path), []
    run(Local(2), [Piece(name, lambda _: here.append(1)) for name in ("one", "two")], store)
    assert len(here) == 2


def test_a_piece_that_comes_before_what_it_needs_is_refused(tmp_path):
    with pytest.raises(ValueError, match="comes before \\['one'\\] that it needs"):
        run(Local(), chain()[1:], Store(tmp_path))
    with pytest.raises(ValueError, match="'one' is there twice"):
        run(Local(), chain()[:1] * 2, Store(tmp_path))


def test_bytes_are_a_file_already():
    assert decode("npz", encode("npz", b"PK")) == b"PK"
    assert encode("json", {"third": 1.0 / 3.0}) == b'{"third": 0.3333333333333333}\n'


def test_a_damaged_pickle_is_named(tmp_path):
    store = Store(tmp_path, "pickle")
    store.write("one", b"\x80")
    with pytest.raises(ValueError, match=r"one\.pickle is damaged .* remove it"):
        store.read("one")


class Odd(Exception):
    """Of a module that the caller may not have."""


@pytest.mark.slow
def test_a_function_aside_gives_what_it_gives_and_raises_what_it_raises():
    assert aside.call(divmod, (17, 5)) == (3, 2)
    with pytest.raises(ValueError, match="invalid literal"):
        aside.call(int, ("x",))


def test_a_process_aside_that_dies_is_an_error(monkeypatch):
    died = subprocess.CompletedProcess([], -9)
    monkeypatch.setattr(aside.subprocess, "run", lambda *_, **__: died)
    with pytest.raises(OSError, match="computes divmod ended with code -9"):
        aside.call(divmod, (17, 5))


def test_errors_become_those_of_python():
    assert isinstance(aside.plain_error(Odd("strange")), RuntimeError)
    assert "Odd: strange" in str(aside.plain_error(Odd("strange")))
    missing = aside.plain_error(ModuleNotFoundError("no", name="jax"))
    assert isinstance(missing, ModuleNotFoundError)
    assert missing.name == "jax"


def test_a_sealed_piece_is_the_piece():
    pytest.importorskip("ray.cloudpickle")
    plain, (piece,) = aside.planned(lambda: ("plain", [Piece("one", lambda _, *before: [1, *before])]))
    assert plain == "plain"
    assert isinstance(piece.compute, aside.Sealed)
    assert piece.compute(None, 2) == [1, 2]
    assert aside.sealed(piece) is piece


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_the_processes_of_a_killed_run_end_with_it(tmp_path):
    file = tmp_path / "waits.py"
    file.write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from tether.engines.engine import Local, run\n"
        "from tether.engines.pieces import Piece, Store\n"
        f"here = Path({str(tmp_path)!r})\n"
        "def wait(report):\n"
        "    (here / f'{os.getpid()}.pid').touch()\n"
        "    time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    run(Local(2), [Piece('one', wait), Piece('two', wait)], Store(here))\n"
    )
    with subprocess.Popen([sys.executable, str(file)]) as driver:
        wait_for(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
        driver.kill()
    wait_for(lambda: not any(alive(int(each.stem)) for each in tmp_path.glob("*.pid")))


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().split(") ")[1][0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
