"""The gallery: all plants of a folder side by side on one page that needs nothing else."""

from __future__ import annotations

import base64
import json
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from tether.core.files import complete_file
from tether_plants.plant import PLANTS


def write_page(folder: str | Path) -> Path:
    """`gallery.html` from the `results.json` and `figure.png` of each plant in the folder."""
    root = Path(folder)
    found = [root / name / "results.json" for name in PLANTS if (root / name / "results.json").exists()]
    if not found:
        raise ValueError(
            f"no results of a plant in {root}; `python -m tether_plants run PLANT --out {root}` makes some"
        )
    page = root / "gallery.html"
    with complete_file(page) as draft:
        draft.write_text(
            render([(json.loads(file.read_text()), file.parent) for file in found]), encoding="utf-8"
        )
    return page


def render(studies: list[tuple[dict[str, Any], Path]]) -> str:
    """The page as text; style and figures are in it."""
    style = (resources.files("tether.paper") / "page" / "page.css").read_text(encoding="utf-8")
    links = "".join(
        f'<li><a href="#{study["plant"]}">{escape(study["title"])}</a></li>' for study, _ in studies
    )
    parts = "".join(_plant(study, folder) for study, folder in studies)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>tether: plants that we did not write</title><style>{style}
.figure {{ overflow-x: auto; }} .figure img {{ width: 100%; min-width: 680px; background: white; border-radius: 14px; }}
.table {{ max-height: none; margin-bottom: .8rem; }}
td, th {{ padding: .2rem .7rem; text-align: right; white-space: nowrap; }}
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) {{ text-align: left; }}</style></head>
<body><header><p class="brand">tether</p><h1>Plants that we did not write</h1>
<p class="lead">Environments that other people published, with the controller that an expert would deploy as the
prior. Every episode is audited by replaying the prior on the same draws in the original environment.</p>
<ul>{links}</ul></header><main>{parts}</main></body></html>
"""


def _plant(study: dict[str, Any], folder: Path) -> str:
    contract = study["contract"]
    figure = folder / "figure.png"
    image = ""
    if figure.exists():
        data = base64.b64encode(figure.read_bytes()).decode("ascii")
        alt = f"{escape(study['title'])}: gains and one episode"
        image = f'<div class="figure"><img alt="{alt}" src="data:image/png;base64,{data}"></div>'
    checks = "".join(
        f"<li>{'holds' if each['holds'] else '<b class=bad>fails</b>'}: {escape(each['what'])}, at most "
        f"{each['worst']:.3g} where {each['allowed']:.3g} is allowed, {each['rounds']} rounds</li>"
        for each in study["checks"]
    )
    tables = "".join(_table(section) for section in study["sections"])
    return f"""<section><h2 id="{study["plant"]}">{escape(study["title"])}</h2>
<p class="note">{escape(study["source"])}. Prior: {escape(study["prior"])}. Reward: {escape(study["reward"])}; cost:
{escape(study["cost"])}. Contract: lam = {contract["lam"]:g}, b = {contract["b"]:g}, {contract["horizon"]} rounds.</p>
{image}{tables}<h3>Assumptions, compared with the original environment</h3><ul>{checks}</ul></section>"""


def _table(section: dict[str, Any]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in section["columns"])
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in section["rows"]
    )
    title, text = escape(section["title"]), escape(section["text"])
    table = f'<div class="table"><table><tr>{head}</tr>{rows}</table></div>'
    return f'<h3>{title}</h3>{table}<p class="note">{text}</p>'


def write_docs(folder: str | Path, document: str | Path) -> None:
    """Write the table of each plant in the folder between its marks in a document, and its figure beside that."""
    path = Path(document)
    text = path.read_text(encoding="utf-8")
    for name in PLANTS:
        file, begin, end = Path(folder) / name / "results.json", f"<!-- plant {name} -->\n", "<!-- end -->"
        if not file.exists() or begin not in text:
            continue
        before, _, rest = text.partition(begin)
        study = json.loads(file.read_text(encoding="utf-8"))
        text = (
            before
            + begin
            + "\n"
            + "\n".join(map(_markdown, study["sections"]))
            + "\n"
            + end
            + rest.partition(end)[2]
        )
        (path.parent / f"plants-{name}.png").write_bytes((file.parent / "figure.png").read_bytes())
    with complete_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def _markdown(section: dict[str, Any]) -> str:
    rows = [section["columns"], ["---"] * len(section["columns"]), *section["rows"]]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows) + f"\n\n{section['text']}\n"
