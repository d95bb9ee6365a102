"""A piece that another process can import."""

from __future__ import annotations


def doubled(number, report, *before):
    """Twice its number, and what the pieces before it gave."""
    report(1, 1, "")
    return [2 * number, *before]
