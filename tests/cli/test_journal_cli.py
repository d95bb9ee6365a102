"""`tether journal` and `tether bench faults`: exit codes, and one line for a mistake."""

from __future__ import annotations

import json

import pytest

from commands import run
from tether.serve.faults import make_plant
from tether.serve.service import Service

PLANTS = {"north": make_plant("north")}


@pytest.fixture
def folder(tmp_path):
    service = Service(PLANTS, tmp_path / "journal")
    service.reset("north", "day")
    for h in (1, 2, 3):
        service.act("north", "day", h, [1.0], 5.0)
        service.observe("north", "day", h, 2.0)
    service._journal.close()
    return tmp_path / "journal"


def test_a_whole_journal(monkeypatch, capsys, folder, tmp_path):
    code, out, _ = run(monkeypatch, capsys, "journal", "verify", folder)
    assert (code, out[:63]) == (0, "Whole: the journal of a service, records 1 to 7 in 1 segments, ")
    code, out, _ = run(monkeypatch, capsys, "journal", "replay", folder)
    assert (code, out) == (0, "The same again: 7 records, every answer bit for bit, every snapshot.\n")
    code, out, _ = run(monkeypatch, capsys, "journal", "replay", folder, "--plants", f"{__name__}:PLANTS")
    assert code in (0, 2)  # where this module can be imported by its name
    table = tmp_path / "out" / "table.parquet"
    code, out, _ = run(monkeypatch, capsys, "journal", "export", folder, "--out", table)
    assert (code, table.exists(), "7 records" in out) == (0, True, True)


def test_a_torn_end_is_reported(monkeypatch, capsys, folder):
    (file,) = folder.glob("*.journal")
    file.write_bytes(file.read_bytes()[:-3])
    code, out, _ = run(monkeypatch, capsys, "journal", "verify", folder)
    assert code == 0
    assert "records 1 to 6" in out
    assert "bytes that were not written to their end" in out


def test_a_damaged_journal_has_exit_code_1_and_says_where(monkeypatch, capsys, folder):
    (file,) = folder.glob("*.journal")
    file.write_bytes(file.read_bytes().replace(b'"observe"', b'"0bserve"', 1))
    for command in ("verify", "replay"):
        code, out, _ = run(monkeypatch, capsys, "journal", command, folder)
        assert code == 1
        assert "is damaged at byte" in out


def test_a_decision_that_differs_has_exit_code_1_and_says_which(monkeypatch, capsys, folder):
    monkeypatch.setattr("tether.certificates.lipschitz.LipschitzCertificate.radius", lambda *_, **__: 0.01)
    code, out, _ = run(monkeypatch, capsys, "journal", "replay", folder)
    assert code == 1
    assert "record 2: act of round 1 of 'north', 'day': the journal has" in out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["verify", "nowhere"], "nowhere is no folder"),
        (["verify", "."], ". is no journal"),
        (["replay", ".", "--plants", "nothing"], "--plants must be module:object, got 'nothing'"),
        (["replay", ".", "--plants", "math:pi"], "must name a mapping of tether.serve.plant.Plant"),
        (["replay", ".", "--plants", "no_such_module:plants"], "No module named 'no_such_module'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    code, _, errors = run(monkeypatch, capsys, "journal", *arguments)
    assert code == 2
    assert complaint in errors
    assert errors.count("\n") == 1


def test_bench_faults_writes_its_verdict(monkeypatch, capsys, tmp_path):
    faults = ("bench", "faults", "--crashes", 1, "--kills", 0, "--out", tmp_path)
    code, out, _ = run(monkeypatch, capsys, *faults)
    assert code == 0
    assert "broken promises 0" in out
    assert json.loads((tmp_path / "results.json").read_text())["simulated"]["wrong"] == []
    code, out, _ = run(monkeypatch, capsys, *faults, "--sabotage", "answer-first")
    assert (code, "answer-first: found" in out) == (0, True)
    assert run(monkeypatch, capsys, *faults, "--seed", 3, "--sabotage", "no-checksum")[0] == 1
    assert run(monkeypatch, capsys, *faults, "--sabotage", "luck")[0] == 2
