"""For `make docs`: our docstrings say "Example:", and the site renders as code what follows "Examples:"."""

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the section while the documentation is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Of every module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
