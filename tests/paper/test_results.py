from __future__ import annotations

import json

import pytest

from made_results import made_results
from tether.core.output import write_json
from tether.paper.results import REQUIRED, find_results, read_results, write_results


def test_what_is_written_is_read_and_a_row_is_a_line(tmp_path):
    results = made_results()
    write_results(tmp_path / "results.json", results)
    assert read_results(tmp_path / "results.json") == results
    lines = (tmp_path / "results.json").read_text().splitlines()
    assert len(lines) > len(results["scores"]) + len(results["tracks"])


def test_what_is_not_such_a_file_is_refused_in_one_clear_sentence(tmp_path):
    file = tmp_path / "results.json"
    with pytest.raises(FileNotFoundError, match=r"results\.json not found"):
        read_results(file)
    for text, message in (
        ("{", "not readable JSON"),
        ("[]", "schema must be 'tether-results-1'.*got 'list'"),
        ('{"schema": 7}', "got 7"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_results(file)


@pytest.mark.parametrize("part", REQUIRED)
def test_a_part_or_a_field_that_is_missing_is_named(part, tmp_path):
    results = made_results()
    first = results[part][0] if isinstance(results[part], list) else results[part]
    name = REQUIRED[part][-1]
    del first[name]
    (tmp_path / "results.json").write_text(json.dumps(results))
    with pytest.raises(ValueError, match=rf"{part}\[0\] has no {name}"):
        read_results(tmp_path / "results.json")
    del results[part]
    (tmp_path / "results.json").write_text(json.dumps(results))
    with pytest.raises(ValueError, match=f"the part '{part}' is missing"):
        read_results(tmp_path / "results.json")


def test_results_are_found_in_a_folder_or_in_the_folders_in_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        find_results(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"no results\.json of a system"):
        find_results(tmp_path)
    for system in ("carbon", "inference"):
        write_results(tmp_path / system / "results.json", made_results(system))
    assert [each["system"] for each in find_results(tmp_path).studies.values()] == ["carbon", "inference"]
    assert list(find_results(tmp_path / "inference").studies) == [tmp_path / "inference" / "results.json"]


def test_tables_that_other_commands_left_are_found_and_checked(tmp_path):
    write_results(tmp_path / "carbon" / "results.json", made_results())
    section = {"title": "Theory", "text": "", "columns": ["lam"], "rows": [[0.0]]}
    write_json(tmp_path / "theory" / "results.json", {"sections": [section]})
    write_json(tmp_path / "bench" / "results.json", {"measurements": []})
    found = find_results(tmp_path)
    assert len(found.studies) == 1
    assert found.sections == [section]
    del section["rows"]
    write_json(tmp_path / "theory" / "results.json", {"sections": [section]})
    with pytest.raises(ValueError, match=r"sections\[0\] has no rows"):
        find_results(tmp_path)


def test_evidence_of_other_studies_is_found_and_checked(tmp_path):
    write_results(tmp_path / "carbon" / "results.json", made_results())
    evidence = {"on": "rl cost", "text": "why", "holds": None}
    write_json(tmp_path / "published" / "results.json", {"evidence": [evidence]})
    assert find_results(tmp_path).evidence == [evidence]
    write_json(tmp_path / "published" / "results.json", {"evidence": [{"on": "rl cost"}]})
    with pytest.raises(ValueError, match=r"evidence\[0\] has no text, holds"):
        find_results(tmp_path)
