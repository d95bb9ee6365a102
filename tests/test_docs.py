"""Every Python block of the README and of docs/ runs, in order, in one namespace a page."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 100
"""Characters of a line of code that the site shows at 1280 px without cutting it."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_snippet_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    text = page.read_text(encoding="utf-8")
    names = {"__name__": "__page__"}
    for block in BLOCK.finditer(text):
        line = text[: block.start()].count("\n") + 2
        exec(compile("\n" * (line - 1) + block.group(1), str(page), "exec"), names)
    printed = capsys.readouterr().out
    assert "BROKEN" not in printed
    if page.name == "README.md":
        assert "KEPT in every round" in printed
        assert float(printed.splitlines()[-1]) > 0.5  # and it is broken without the guard


def test_every_link_between_pages_leads_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_names_every_page():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert f"docs/{page.name}" in readme


def test_the_site_builds_without_a_warning_has_every_page_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = (site / f"{page.stem}.html").read_text(encoding="utf-8")
        assert not re.search(r"<(?:link|script|img)[^>]+(?:src|href)=\"?(?:https?:)?//", text)

    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = ")


def shown_code(text: str) -> list[str]:
    """The lines of a page's code, fenced or indented after an empty line."""
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    indented = re.findall(r"(?<=\n\n)(?: {4}.*\n)+", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return fenced.splitlines() + [line[4:] for part in indented for line in part.splitlines()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_line_of_code_fits_the_page(page):
    for line in shown_code(page.read_text(encoding="utf-8")):
        assert len(line) <= WIDTH, line


def test_every_function_that_contributing_names_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walks = text[text.index("## Four walks") :]
    named = re.findall(r"`([\w/]+\.py):([\w.]+)`", walks)
    assert len(named) > 30
    for file, name in named:
        body = ast.parse((ROOT / "src" / "tether" / file).read_text(encoding="utf-8")).body
        for part in name.split("."):
            found = [node for node in body if part in names_of(node)]
            assert found, f"CONTRIBUTING.md names {file}:{name}"
            body = getattr(found[0], "body", [])


def names_of(node: ast.stmt) -> list[str]:
    """What a statement of a module or a class defines."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []


def test_a_walk_has_at_most_ten_steps():
    walks = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Four walks")[1]
    steps = [len(re.findall(r"^\d+\. ", walk, re.MULTILINE)) for walk in walks.split("\n\n**One ")[1:]]
    assert len(steps) == 4
    assert max(steps) <= 10


def test_the_site_lists_every_page():
    listed = re.findall(r": ([\w/-]+\.md)\b", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [page.name for page in (ROOT / "docs").glob("*.md")]
    notebooks = [f"notebooks/{book.stem}.md" for book in (ROOT / "docs" / "notebooks").glob("*.ipynb")]
    assert sorted(listed) == sorted(pages + notebooks)
