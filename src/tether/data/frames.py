"""Polars, which the readers of files are written with (extra `[data]`)."""

from __future__ import annotations

from typing import Any

from tether.core.extras import missing


def load_polars(purpose: str) -> Any:
    """The module `polars`, or one line that says how to get it.

    Args:
        purpose: What needs it, as the beginning of that line: "reading log files".
    """
    try:
        import polars
    except ModuleNotFoundError as error:
        raise missing(purpose, error) from None
    return polars
