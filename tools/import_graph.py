"""Which layer imports which, as a figure: `python tools/import_graph.py` writes docs/import-graph.svg.

Every import of the source counts, those inside functions and for type checking only included. tests/test_layers.py
reads the same imports and fails where one points up.
"""

from __future__ import annotations

import ast
import math
import sys
import textwrap
from collections import Counter
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "tether"
LAYERS = (
    "core", "engines", "certificates", "data", "systems", "simulate", "learn", "exact",
    "assure", "estimation", "adapters", "serve", "paper", "bench", "cli",
)  # fmt: skip
"""From the bottom to the top."""
FACADES = {"__init__.py", "envs.py", "gym.py", "data/__init__.py"}
"""The public names, each with one line: they may point anywhere, and nothing in the layers imports them."""


def modules() -> list[Path]:
    """Every file of the source."""
    return sorted(SOURCE.rglob("*.py"))


def place(file: Path) -> str:
    """Where a file is inside of the source."""
    return file.relative_to(SOURCE).as_posix()


def imported(file: Path) -> list[tuple[int, str]]:
    """(line, module of tether) of every import, those inside functions and for type checking only included."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.ImportFrom)
            and node.level == 0
            and (node.module or "").split(".")[0] == "tether"
        ):
            module = str(node.module)
            names = [f"tether.{alias.name}" for alias in node.names] if module == "tether" else [module]
            found += [(node.lineno, name) for name in names]
        elif isinstance(node, ast.Import):
            found += [(node.lineno, each.name) for each in node.names if each.name.split(".")[0] == "tether"]
    return found


def between_layers() -> Counter[tuple[str, str]]:
    """How many imports point from one layer to another."""
    count: Counter[tuple[str, str]] = Counter()
    for file in modules():
        if place(file) not in FACADES:
            layer = place(file).split("/")[0]
            targets = (module.split(".")[1] for _, module in imported(file))
            count.update((layer, target) for target in targets if target != layer)
    return count


def meaning(layer: str) -> str:
    """The first sentence of a layer's own docstring, as far as there is room for it."""
    text = ast.get_docstring(ast.parse((SOURCE / layer / "__init__.py").read_text(encoding="utf-8"))) or ""
    sentence = text.splitlines()[0].split(". ")[0].replace("`", "").rstrip(".")
    return textwrap.shorten(sentence, 62, placeholder=" ...")


def svg(count: Counter[tuple[str, str]]) -> str:
    """The layers from top to bottom; an arc for each pair, thicker the more imports there are."""
    row, left, top = 44, 590, 34
    heights = {layer: top + row * (len(LAYERS) - 1 - level) for level, layer in enumerate(LAYERS)}
    width, height = 960, top + row * len(LAYERS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" role="img" aria-label="Which layer of tether imports which">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for layer, y in heights.items():
        files = sum(1 for _ in (SOURCE / layer).rglob("*.py"))
        parts += [
            f'<rect x="10" y="{y - 17}" width="{left - 10}" height="34" rx="5" fill="#eef3f9"/>',
            f'<text x="22" y="{y + 5}" font-size="14" font-weight="600" fill="#12355b">{layer}</text>',
            f'<text x="122" y="{y + 4}" font-size="11.5" fill="#333">{escape(meaning(layer))}</text>',
            f'<text x="{left - 10}" y="{y + 4}" font-size="11" fill="#667" text-anchor="end">{files} files</text>',
        ]
    for (above, below), number in sorted(count.items()):
        start, end = heights[above] - 6, heights[below] + 6
        reach = left + 20 + 0.62 * abs(end - start)
        colour = "#b3261e" if LAYERS.index(below) > LAYERS.index(above) else "#0072b2"
        parts.append(
            f'<path d="M{left} {start} C{reach:.0f} {start} {reach:.0f} {end} {left} {end}" fill="none" '
            f'stroke="{colour}" stroke-opacity="0.45" stroke-width="{0.7 + 0.8 * math.log2(number):.1f}">'
            f"<title>{above} imports {below}: {number} times</title></path>"
        )
    parts.append("</svg>\n")
    return "\n".join(parts)


def main(target: Path = ROOT / "docs" / "import-graph.svg") -> None:
    """Draw it."""
    count = between_layers()
    target.write_text(svg(count), encoding="utf-8")
    print(f"{target}: {sum(count.values())} imports between {len(LAYERS)} layers")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
