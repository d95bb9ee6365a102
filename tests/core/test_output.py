from __future__ import annotations

import json
from importlib import metadata

import numpy as np
import pytest

from tether.core.files import complete_file
from tether.core.output import prepare_folder, provenance, write_json


def test_numbers_of_numpy_are_written_as_numbers(tmp_path):
    write_json(
        tmp_path / "deep" / "results.json", {"a": np.float64(0.5), "b": np.arange(3), "c": np.bool_(True)}
    )
    assert json.loads((tmp_path / "deep" / "results.json").read_text()) == {
        "a": 0.5,
        "b": [0, 1, 2],
        "c": True,
    }


def test_what_cannot_be_written_leaves_what_was_there(tmp_path):
    file = tmp_path / "results.json"
    write_json(file, {"kept": 1})
    for bad, error in (({"x": object()}, TypeError), ({"x": float("nan")}, ValueError)):
        with pytest.raises(error):
            write_json(file, bad)
    assert json.loads(file.read_text()) == {"kept": 1}
    assert list(tmp_path.iterdir()) == [file]


def test_a_failed_block_leaves_nothing(tmp_path):
    def fail(draft):
        draft.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError), complete_file(tmp_path / "figure.png") as draft:
        fail(draft)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_made_but_a_file_is_not_replaced(tmp_path):
    assert prepare_folder(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="is a file; --out must be a folder"):
        prepare_folder(tmp_path / "file")


def test_versions_are_told_of_what_is_installed_only(monkeypatch):
    def version(name):
        if name == "jax":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    told = provenance("tether train carbon")
    assert told["command"] == "tether train carbon"
    assert set(told["versions"]) == {"tether-rl", "numpy", "jaxlib", "equinox"}
