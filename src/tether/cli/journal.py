"""The commands `tether journal verify`, `replay` and `export`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tether.cli import shell
from tether.core.journal.journal import Differs
from tether.core.journal.segment import JournalDamaged

Folder = Annotated[Path, typer.Argument(help="The folder of the journal.", show_default=False)]


@dataclass(frozen=True)
class VerifyOptions:
    """What `tether journal verify` can be asked for."""

    path: Folder


def verify(options: VerifyOptions) -> None:
    """Read every byte of a journal and check it; exit code 1 if it is not what was written."""
    from tether.serve import reading

    try:
        found = reading.verify(_folder(options.path))
    except JournalDamaged as error:
        shell.console.print(str(error), soft_wrap=True, markup=False)
        raise typer.Exit(1) from None
    shell.console.print(
        f"Whole: the journal of a {found.kind}, records {found.first} to {found.last} in {found.segments} segments, "
        f"{found.size} bytes.",
        soft_wrap=True,
    )
    if found.torn:
        shell.console.print(
            f"Behind the last record are {found.torn} bytes that were not written to their end, and so were not "
            "answered; the next start cuts them off.",
            soft_wrap=True,
        )


@dataclass(frozen=True)
class ReplayOptions:
    """What `tether journal replay` can be asked for."""

    path: Folder
    plants: Annotated[
        str | None,
        typer.Option(
            help="module:object of a mapping of tether.serve.plant.Plant by name, for plants with a monitor or a "
            "certificate of your own; the others are made from the journal."
        ),
    ] = None


def replay(options: ReplayOptions) -> None:
    """Compute every decision of a journal again and compare it bit for bit; exit code 1 if one differs."""
    from tether.serve import reading

    plants = None if options.plants is None else _plants(options.plants)
    try:
        done = reading.replay(_folder(options.path), plants)
    except (Differs, JournalDamaged) as error:
        shell.console.print(str(error), soft_wrap=True, markup=False)
        raise typer.Exit(1) from None
    shell.console.print(f"The same again: {done} records, every answer bit for bit, every snapshot.")


@dataclass(frozen=True)
class ExportOptions:
    """What `tether journal export` can be asked for."""

    path: Folder
    out: Annotated[Path, typer.Option("--out", help="The Parquet file to write.")] = Path(
        "out/journal.parquet"
    )


def export(options: ExportOptions) -> None:
    """Write a journal as a Parquet file, a row a record, for polars or DuckDB (extra `data`)."""
    from tether.core.files import complete_file
    from tether.serve import reading

    with complete_file(options.out) as draft:
        count = reading.export(_folder(options.path), draft)
    shell.console.print(f"{options.out}: {count} records", soft_wrap=True)


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is no folder, and a journal is one")
    return path


def _plants(name: str) -> Mapping[str, Any]:
    """The plants that module:object names."""
    import importlib

    from tether.serve.plant import Plant

    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ValueError(f"--plants must be module:object, got {name!r}")
    found = getattr(importlib.import_module(module), attribute, None)
    if not isinstance(found, Mapping) or not all(isinstance(each, Plant) for each in found.values()):
        raise ValueError(f"--plants must name a mapping of tether.serve.plant.Plant, got {name!r}: {found!r}")
    return found
