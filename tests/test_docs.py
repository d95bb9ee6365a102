"""Every Python block of the README and of docs/ runs, in order, in one namespace a page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).resolve().parents[1]
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


def test_the_site_lists_every_page():
    listed = re.findall(r"\b([\w-]+\.md)\b", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))
