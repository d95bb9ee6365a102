"""The command `tether`."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from tether.cli import shell
    from tether.cli.app import app

    shell.run(app)
