"""The layers are the folders, and imports point to lower layers only."""

from __future__ import annotations

import re

import pytest
from import_graph import FACADES, LAYERS, between_layers, imported, modules, place, svg


@pytest.mark.parametrize("file", modules(), ids=place)
def test_imports_point_down(file):
    if place(file) in FACADES:
        return
    layer = LAYERS.index(place(file).split("/")[0])
    for line, module in imported(file):
        parts = module.split(".")
        assert set(parts[1:2]) <= set(LAYERS), f"{place(file)}:{line} imports the public name {module}"
        assert LAYERS.index(parts[1]) <= layer, f"{place(file)}:{line} imports {module}, a layer above it"


def test_no_relative_imports():
    for file in modules():
        assert not re.search(r"^\s*from \.", file.read_text(encoding="utf-8"), re.MULTILINE), place(file)


def test_the_figure_has_every_layer_and_shows_an_import_that_points_up_in_red():
    count = between_layers()
    figure = svg(count)
    assert all(f">{layer}</text>" in figure for layer in LAYERS)
    assert figure.count("<path") == len(count)
    assert "#b3261e" not in figure
    count["core", "cli"] += 1
    assert figure.count("#0072b2") == svg(count).count("#0072b2") > svg(count).count("#b3261e") == 1
