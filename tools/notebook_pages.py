"""A hook of mkdocs: each notebook under docs/ is a page of the site, and a file to be downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def on_files(files: Any, config: Any) -> Any:
    """Add a page beside each notebook, of the same name."""
    from mkdocs.structure.files import File

    for file in [each for each in files if each.src_uri.endswith(".ipynb")]:
        place = Path(file.abs_src_path)
        page = page_of(place.name, place.read_text(encoding="utf-8"))
        files.append(File.generated(config, file.src_uri.removesuffix(".ipynb") + ".md", content=page))
    return files


def page_of(name: str, notebook: str) -> str:
    """The text of a notebook as Markdown, with a link to its file below the title."""
    first, *rest = [_cell(cell) for cell in json.loads(notebook)["cells"]]
    title, _, text = first.partition("\n")
    return "\n\n".join([title, f"[Download this notebook]({name}).", text.strip(), *rest]) + "\n"


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    return f"```python\n{source}\n```" if cell["cell_type"] == "code" else source
