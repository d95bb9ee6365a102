"""The command `tether`: how it starts, where only NumPy is installed too, and how it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tether.core.extras import EXTRAS, missing
from tether.core.program_cache import keep_programs


def main() -> None:
    """Run the command line; a user's mistake, or a missing extra, is one line and exit code 2."""
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, TypeError, OSError, ImportError, FloatingPointError, NotImplementedError) as error:
        if os.environ.get("TETHER_DEBUG"):
            raise
        message = " ".join(str(error).split())
        if not (isinstance(error, ModuleNotFoundError) and error.name in EXTRAS):
            message = f"tether: error: {message} (TETHER_DEBUG=1 shows where)"
        print(message, file=sys.stderr)
        sys.exit(2)


def _run() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # module:object may be a script in this folder
    keep_programs()
    try:
        from tether.cli.app import app
    except ModuleNotFoundError as error:
        raise missing(" ".join(["tether", *sys.argv[1:2]]), error) from None
    app()
