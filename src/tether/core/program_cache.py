"""Programs that JAX has compiled are kept between runs, in a folder of the user's own.

A program is machine code: who can write it can run anything as this user. So the folder is made for its owner alone,
and one that others own or may write to is not used. Machines that share a home have different processors: each kind
has a folder of its own.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import sys
from importlib import metadata
from pathlib import Path

VARIABLE = "TETHER_CACHE"
"""Environment variable: another folder, or `off`."""
LEAST_SECONDS = 0.2
"""What compiles faster than this is not kept."""


def keep_programs() -> Path | None:
    """Keep what JAX compiles from now on; the folder, or None if nothing is kept.

    Whoever has told JAX where to keep its programs (`JAX_COMPILATION_CACHE_DIR`) has it that way. Where the folder
    cannot be written to, all goes on as without one. JAX is not imported.
    """
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    folder = _folder()
    if folder is None or not _ours(folder):
        return None
    jax = sys.modules.get("jax")
    if jax is None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", str(LEAST_SECONDS))
    elif jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    else:
        return Path(jax.config.jax_compilation_cache_dir)
    return folder


def _folder() -> Path | None:
    asked = os.environ.get(VARIABLE, "")
    if asked.lower() in ("off", "0", "no", "false"):
        return None
    try:
        jaxlib = metadata.version("jaxlib")
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        top = Path(asked) if asked else base / "tether" / "programs"
    except (metadata.PackageNotFoundError, RuntimeError):  # no JAX, no home
        return None
    return top / f"jaxlib-{jaxlib}-{_processor()}"


def _processor() -> str:
    """What tells kinds of processors apart, as a few digits."""
    known = f"{platform.machine()} {platform.processor()} {sys.version_info[:2]}"
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        known += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        pass
    return hashlib.sha256(known.encode()).hexdigest()[:12]


def _ours(folder: Path) -> bool:
    """Make the folder for its owner alone; whether it is there, and nobody else can write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = folder.stat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return True
    return known.st_uid == os.getuid() and not known.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
