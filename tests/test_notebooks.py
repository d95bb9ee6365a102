"""The notebooks of docs/notebooks run from top to bottom, and are committed as they are before they are run."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import matplotlib
import pytest
from notebook_pages import page_of

ROOT = Path(__file__).resolve().parents[1]
GUARDED = {"guarded", "paper", "released", "tight", "acrl"}
ALONE = {"miser", "alone", "unguarded", "rl"}
"""What the lines begin with that a notebook prints, behind a guard and not."""
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def code_of(notebook: Path) -> list[str]:
    """The code cells of a notebook."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.fixture
def figures():
    """Pictures are drawn and thrown away."""
    from matplotlib import pyplot

    matplotlib.use("Agg")
    yield
    pyplot.close("all")


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_every_cell_of_a_notebook_runs_in_order(notebook, tmp_path, monkeypatch, capsys, figures):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_plant", raising=False)
    names = {"__name__": "__notebook__"}
    for number, code in enumerate(code_of(notebook), start=1):
        exec(compile(code, f"{notebook.name}, code cell {number}", "exec"), names)
    sys.modules.pop("my_plant", None)
    printed = capsys.readouterr().out
    assert "BROKEN" not in printed
    rates = re.findall(r"^(\w+)\b.*broken (?:on )?(\d+)%", printed, re.MULTILINE)
    assert {rate for name, rate in rates if name in GUARDED} == {"0"}, printed
    assert max(int(rate) for name, rate in rates if name in ALONE) > 50, printed


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_committed_without_outputs(notebook):
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_the_page_of_a_notebook_has_its_title_its_file_and_all_of_its_code(notebook):
    page = page_of(notebook.name, notebook.read_text(encoding="utf-8"))
    assert page.startswith("# ")
    assert f"]({notebook.name})" in page
    assert [f"```python\n{code}\n```" in page for code in code_of(notebook)].count(False) == 0


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_plain_python_whose_lines_fit(notebook):
    for code in code_of(notebook):
        ast.parse(code)
        assert max(map(len, code.splitlines())) <= 130
