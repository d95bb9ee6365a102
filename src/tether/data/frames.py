"""Polars, which the readers of files are written with (extra `[data]`)."""

from __future__ import annotations

from typing import Any


def load_polars(purpose: str) -> Any:
    """The module `polars`, or one line that says how to get it.

    Args:
        purpose: What needs it, as the beginning of that line: "reading log files".
    """
    try:
        import polars
    except ImportError:
        raise ImportError(f"{purpose} needs the package polars: pip install 'tether-rl[data]'") from None
    return polars
