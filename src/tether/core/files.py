"""Files that are either complete or not there: written beside their place and then moved into it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def complete_file(path: str | Path) -> Iterator[Path]:
    """A path to write to; it becomes `path` if the block ends well and disappears if it does not."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}-", suffix=target.suffix)
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        draft.chmod(0o644)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
