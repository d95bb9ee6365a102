"""Where the authors' data and networks are, and what to do where they are not."""

from __future__ import annotations

import os
import shutil
from importlib import metadata
from pathlib import Path

import pytest

# What one worker, command or run has compiled, the others need not compile again. JAX reads this when it is imported.
_CACHE = Path(__file__).resolve().parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # programs without the lines they come from
# Most of the suite's time is compilation. Fewer passes take half of it away and change no formula. A flag that another
# jaxlib does not know would end the process, so they are for the pinned one only.
_PINNED = (Path(__file__).resolve().parents[1] / "constraints.txt").read_text().splitlines()
if f"jaxlib=={metadata.version('jaxlib')}" in _PINNED:
    _FLAGS = (
        "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false "
        "--xla_cpu_parallel_codegen_split_count=1"  # one thread compiles a program; both cores have tests to run
    )
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS}".strip()

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    if not (SHARED / "data").is_dir():
        pytest.skip(f"the authors' data is not in {SHARED}")
    return SHARED


@pytest.fixture(scope="module")
def compiled_quickly():
    """Programs without any optimisation, for modules that compile much and play little: a quarter less time in all."""
    import jax

    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    jax.config.update(name, True)
    yield
    jax.config.update(name, before)


@pytest.fixture
def compiled_well(compiled_quickly):
    """A test of a module that is compiled quickly whose programs need to be optimised."""
    import jax

    name = "jax_disable_most_optimizations"
    jax.config.update(name, False)
    yield
    jax.config.update(name, True)


def _chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser():
    """Chromium, if it is installed; nothing is ever installed or downloaded for it."""
    playwright = pytest.importorskip("playwright.sync_api")
    if _chromium() is None:
        pytest.skip("no chromium")
    with playwright.sync_playwright() as driver:
        # Root may not use the sandbox, and nothing but the page itself is to be loaded.
        flags = (
            "no-sandbox",
            "disable-gpu",
            "disable-background-networking",
            "disable-component-update",
            "disable-sync",
        )
        started = driver.chromium.launch(executable_path=_chromium(), args=[f"--{flag}" for flag in flags])
        yield started
        started.close()


def pytest_terminal_summary(terminalreporter) -> None:
    """Say loudly what was not tested."""
    if _chromium() is None:
        terminalreporter.section("BROWSER TESTS SKIPPED", sep="!", red=True, bold=True)
        terminalreporter.line("No chromium on this machine: report.html was not tested in a browser.")
        terminalreporter.line("Install Chromium (Debian: apt-get install chromium) and run the tests again.")
