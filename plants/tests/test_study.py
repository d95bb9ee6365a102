"""Studies, summaries, figures, the gallery and the command line."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tether_plants.__main__ import main
from tether_plants.figures import write_figure
from tether_plants.page import write_docs, write_page
from tether_plants.plant import PLANTS, Check, find
from tether_plants.study import study
from tether_plants.summary import summary


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plants")
    plant = replace(
        find("building"),
        checks=lambda _: [Check("nothing, degrees", 1, 0.0, 1.0)],
        absent={"compiled": lambda: "it was not asked for, 0 times"},
    )
    found = study(
        plant,
        seeds=1,
        episodes=2,
        out=folder / "building",
        learners=["off"],
        certificates=["lipschitz", "shadowed"],
        report=lambda _: None,
    )
    return found, folder


def test_a_study_goes_on_where_it_was_interrupted_and_throws_nothing_away(tmp_path):
    lines: list[str] = []

    def told(line):
        lines.append(line)
        if "1 of 2  seed" in line:
            raise KeyboardInterrupt

    plant = replace(find("building"), checks=lambda _: [])
    asked = {"seeds": 1, "learners": ["off"], "certificates": ["lipschitz"], "out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        study(plant, episodes=1, report=told, **asked)
    lines.clear()
    first = study(plant, episodes=1, report=told, **asked)
    assert lines[0] == "building: 1 of 2 rows are there"
    assert [(row["learner"], row["certificate"]) for row in first["rows"]] == [
        ("prior", None), ("off", None), ("off", "lipschitz"),
    ]  # fmt: skip
    lines.clear()
    more = study(plant, episodes=2, report=lines.append, **asked)
    assert lines[0] == "building: 0 of 2 rows are there"
    assert [row["episodes"] for row in more["rows"]] == [2, 2, 2]
    assert more["rows"][1]["gains"][0] == first["rows"][1]["gains"][0]
    lines.clear()
    assert study(plant, episodes=1, report=lines.append, **asked)["rows"] == more["rows"]
    assert lines == ["building: 2 of 2 rows are there"]


def test_a_study_says_what_was_gained_kept_and_violated(results):
    found, folder = results
    rows = {(row["learner"], row["certificate"]): row for row in summary(found)}
    assert rows["off", None]["violation_rate"] == 1.0
    assert rows["off", "shadowed"]["violation_rate"] == 0.0
    assert 0.0 < rows["off", "lipschitz"]["kept"] < rows["off", "shadowed"]["kept"] < 1.0
    assert json.loads((folder / "building" / "results.json").read_text())["sections"][0]["rows"]


def test_a_certificate_that_gives_nothing_is_a_row_with_its_reason(results):
    section = results[0]["sections"][0]
    assert section["rows"][-1][:2] == ["any", "compiled"]
    assert "none" in section["rows"][-1]
    assert section["text"].endswith("Compiled: it was not asked for, 0 times.")


@pytest.mark.parametrize("name", PLANTS)
def test_an_adapter_has_at_most_150_lines(name):
    module = importlib.import_module(f"tether_plants.{name}.adapter")
    assert len(Path(module.__file__).read_text().splitlines()) <= 150


def test_the_gallery_shows_every_plant_and_loads_nothing_from_elsewhere(results):
    found, folder = results
    write_figure(found, folder / "building")
    page = write_page(folder).read_text()
    assert "data:image/png" in page
    assert "nothing, degrees" in page
    assert "http:" not in page.replace("http-equiv", "")


def test_tables_of_a_document_are_written_between_their_marks(results, tmp_path):
    found, folder = results
    write_figure(found, folder / "building")
    document = tmp_path / "plants.md"
    document.write_text(
        "before\n<!-- plant building -->\nold\n<!-- end -->\nafter\n<!-- plant anm -->\n<!-- end -->\n"
    )
    for _ in range(2):
        write_docs(folder, document)
    text = document.read_text()
    assert text.startswith("before\n")
    assert "\nafter\n" in text
    assert "old" not in text
    assert text.count("| learner |") == 1
    assert (tmp_path / "plants-building.png").exists()


def test_mistakes_are_one_line(tmp_path, capsys):
    assert main(["page", str(tmp_path)]) == 2
    assert "no results of a plant" in capsys.readouterr().err
    assert main(["run", "building", "--seeds", "0", "--out", str(tmp_path)]) == 2
    assert "--seeds must be at least 1, got 0" in capsys.readouterr().err
    assert main(["run", "building", "--learners", "none", "--out", str(tmp_path)]) == 2
    assert "building has no learner 'none'" in capsys.readouterr().err
