"""A run in pieces: nothing is computed twice, nothing is lost, and nobody writes into another's folder."""

from __future__ import annotations

import errno
import json
import subprocess
import sys

import pytest

from tether.engines.engine import Silent
from tether.engines.folders import FolderInUse, claim, run_pieces
from tether.engines.pieces import Piece, Store

IDENTITY = {"lams": [0.0, 2.0], "seeds": [0, 1], "command": "tether reproduce carbon"}


def pieces(log, fail=None):
    """Three pieces that note down when they are computed; the one called `fail` is killed before it ends."""

    def compute(name):
        def work(report):
            log.append(name)
            report(1, 1, "")
            if name == fail:
                raise KeyboardInterrupt
            return {"name": name, "third": 1.0 / 3.0}

        return work

    return [Piece(name, compute(name)) for name in ("one", "two", "three")]


class Watched(Silent):
    """Notes down which pieces were finished, and whether they were found."""

    def __init__(self, log):
        self.log = log

    def finished(self, piece, found):
        self.log.append((piece.name, found))


def test_a_killed_run_goes_on_and_finished_pieces_are_not_computed_again(tmp_path):
    log = []
    with pytest.raises(KeyboardInterrupt):
        run_pieces(tmp_path, IDENTITY, pieces(log, fail="two"), resume=False)
    found = []
    resumed = run_pieces(
        tmp_path,
        IDENTITY | {"command": "typed otherwise"},
        pieces(log),
        resume=True,
        watch=Watched(found),
    )
    assert log == ["one", "two", "two", "three"]
    assert found == [("one", True), ("two", False), ("three", False)]
    assert resumed == run_pieces(tmp_path / "other", IDENTITY, pieces([]), resume=False)
    assert json.loads((tmp_path / "run.json").read_text()) == IDENTITY  # with the first command


def test_without_resume_a_run_that_is_there_is_not_touched(tmp_path):
    run_pieces(tmp_path, IDENTITY, pieces([]), resume=False)
    with pytest.raises(ValueError, match="holds this run already; add --resume"):
        run_pieces(tmp_path, IDENTITY, pieces([]), resume=False)


@pytest.mark.parametrize("resume", [False, True])
def test_the_folder_of_another_run_is_refused_and_kept(tmp_path, resume):
    run_pieces(tmp_path, IDENTITY, pieces([]), resume=False)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.json")}
    with pytest.raises(ValueError, match=r"holds another run \(seeds differ\); name another --out"):
        run_pieces(tmp_path, IDENTITY | {"seeds": [0]}, pieces([]), resume=resume)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.json")} == before


def test_the_results_of_another_command_are_refused_and_kept(tmp_path):
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(ValueError, match="holds other results"):
        run_pieces(tmp_path, IDENTITY, pieces([]), resume=True)
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


def test_a_damaged_piece_is_named(tmp_path):
    run_pieces(tmp_path, IDENTITY, pieces([]), resume=False)
    (tmp_path / "pieces" / "two.json").write_text('{"name": ')
    with pytest.raises(ValueError, match=r"two\.json is damaged .* remove it"):
        run_pieces(tmp_path, IDENTITY, pieces([]), resume=True)


def test_two_processes_do_not_share_a_folder_and_a_dead_one_leaves_it_free(tmp_path):
    hold = (
        "from tether.engines.folders import claim\n"
        f"with claim({str(tmp_path)!r}): print('held', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", hold], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(FolderInUse, match=f"in use by another run \\(process {other.pid}\\)"),
            claim(tmp_path),
        ):
            pass
        other.kill()
    with claim(tmp_path) as folder:
        assert folder == tmp_path


def test_a_full_disk_is_one_line_and_finished_pieces_stay(tmp_path, monkeypatch):
    write = Store.write

    def full(store, name, data):
        if name == "two":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(store, name, data)

    monkeypatch.setattr(Store, "write", full)
    with pytest.raises(OSError, match=r"no space left for .* --resume"), claim(tmp_path):
        run_pieces(tmp_path, IDENTITY, pieces([]), resume=False)
    assert [file.name for file in (tmp_path / "pieces").iterdir()] == ["one.json"]
    monkeypatch.setattr(Store, "write", write)
    log = []
    with claim(tmp_path):
        run_pieces(tmp_path, IDENTITY, pieces(log), resume=True)
    assert log == ["two", "three"]


def test_other_failures_keep_their_own_words(tmp_path):
    with pytest.raises(IsADirectoryError, match="mine"), claim(tmp_path):
        raise IsADirectoryError("mine")
    with pytest.raises(PermissionError, match=r"run\.json cannot be written"), claim(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied", "run.json")
