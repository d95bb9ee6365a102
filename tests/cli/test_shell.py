"""What every command shares."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from commands import run
from tether.cli import shell
from tether.engines.pieces import Piece
from tether.systems import registry


@dataclass(frozen=True)
class Options:
    folder: Annotated[Path, typer.Argument()]
    seed: shell.Seed = 3
    lams: shell.Lams = "0,2"


def test_the_fields_of_a_dataclass_are_the_options_of_a_command():
    seen = []

    def work(options: Options) -> None:
        """Do something."""
        seen.append(options)

    app = typer.Typer()
    app.command()(shell.command("tether something", work))
    assert "Do something." in CliRunner().invoke(app, ["--help"]).output
    assert CliRunner().invoke(app, ["here", "--lams", "1"]).exit_code == 0
    assert CliRunner().invoke(app, ["here", "--seed", "-1"]).exit_code == 2
    assert CliRunner().invoke(app, []).exit_code == 2
    assert seen == [Options(Path("here"), seed=3, lams="1")]


def test_lists_are_separated_by_commas_and_every_pair_is_a_contract():
    assert shell.listed(" rl, acrl,,") == ["rl", "acrl"]
    assert shell.contracts("0,2", "1,6") == [(0.0, 1.0), (2.0, 1.0), (0.0, 6.0), (2.0, 6.0)]
    with pytest.raises(ValueError, match=r"--bs must be numbers separated by commas, got '1;2'"):
        shell.contracts("0", "1;2")
    with pytest.raises(ValueError, match="--b must be at least 0, got -1"):
        shell.promise(0.0, -1.0)


def test_results_say_how_they_were_made_and_where_they_are(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/tether", "train", "my plant:system"])
    shell.finish(tmp_path, {"reward": 1.5})
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["reward"] == 1.5
    assert results["provenance"]["command"] == "tether train 'my plant:system'"
    shell.finish(tmp_path, {}, ["a.png"])
    shell.finish(tmp_path, {}, ["a.png", "b.png"])
    place = tmp_path / "results.json"
    assert capsys.readouterr().out.splitlines() == [
        f"Results: {place}",
        f"Figure: {tmp_path / 'a.png'}   Results: {place}",
        f"Figures: {tmp_path / 'a.png'}, {tmp_path / 'b.png'}   Results: {place}",
    ]


def test_a_folder_is_called_after_the_command_and_the_system():
    assert shell.default_folder("sensitivity", "plant:system") == Path("out/sensitivity/plant-system")


def test_progress_leaves_nothing_where_there_is_no_terminal(capsys):
    with shell.counting("rows") as report:
        report(1, 2, "other rows")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["train", "limit", "attack", "verify", "sensitivity"])
def test_help_names_the_installed_systems_and_how_to_give_another(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = run(monkeypatch, capsys, command, "--help")
    assert f"{', '.join(registry.names())}, or module:object" in out


def test_reproduce_has_a_command_for_every_installed_system_and_takes_the_place_of_another(
    monkeypatch, capsys
):
    _, out, _ = run(monkeypatch, capsys, "reproduce", "--help")
    assert all(name in out for name in (*registry.names(), "module:object"))
    code, out, _ = run(monkeypatch, capsys, "reproduce", "my_plant:system", "--help")
    assert code == 0
    assert "--resume" in out
    code, _, err = run(monkeypatch, capsys, "reproduce", "my_plant:system")
    assert code == 2
    assert "'my_plant:system'" in err


def test_the_command_is_kept_without_what_does_not_change_results(monkeypatch):
    given = "attack carbon --engine ray --out a --address=auto --episodes 10 --workers 2 --resume --seed=1"
    monkeypatch.setattr(sys, "argv", ["tether", *given.split()])
    assert shell.typed() == "tether attack carbon --episodes 10 --seed=1"


@dataclass(frozen=True)
class Asked:
    system: str = "carbon"
    data: Path | None = None
    engine: str = "local"
    out: Path = Path("out")


def test_an_unfinished_run_is_found_by_the_same_command_only(tmp_path):
    file = tmp_path / "data.npz"
    file.write_bytes(b"1")
    first = shell.unfinished(tmp_path, Asked(data=file))
    assert first == shell.unfinished(tmp_path, Asked(data=file, engine="ray", out=Path("elsewhere")))
    file.write_bytes(b"22")
    others = [Asked(data=file), Asked(), Asked("cooling"), Asked("made_pieces:system")]
    assert len({shell.unfinished(tmp_path, each).folder for each in others} | {first.folder}) == 5
    first.write("one", b"1")
    shell.forget(first)
    assert not (tmp_path / "unfinished").exists()


def test_progress_names_workers_and_the_time_left(capsys):
    with shell.watching("attack", 3, lines=True) as watch:
        watch.finished(Piece("zero", None), True)
        watch.working(2, 2)
        watch.finished(Piece("one", None), False)
    lines = capsys.readouterr().err.splitlines()
    assert "attack  1/3  zero" in lines[0]
    assert "2 workers, about 0 s left" in lines[1]
