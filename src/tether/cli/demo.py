"""The command `tether demo`."""

from __future__ import annotations

import signal
import tempfile
import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell


@dataclass(frozen=True)
class Options:
    """What `tether demo` can be asked for."""

    seconds: Annotated[float, typer.Option(help="How long it goes on.", min=5.0)] = 90.0
    port: Annotated[int, typer.Option(help="Port of the dashboard; 0 for any.", min=0, max=65535)] = 8720
    browser: Annotated[bool, typer.Option(help="Open the dashboard in a browser.")] = True


def demo(options: Options) -> None:
    """Watch it: simulated plants, learners under guard, an operator's stop, a kill and its recovery.

    The same as deploy/compose.yaml, as plain processes on this machine. It ends by itself, or on Ctrl-C, and leaves
    nothing running.
    """
    from tether.serve.demo import Demo, story

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, ended)
    with tempfile.TemporaryDirectory(prefix="tether-demo-") as folder:
        show = Demo(
            Path(folder), options.port, lambda line: shell.console.print(line, soft_wrap=True, markup=False)
        )
        try:
            show.start_service()
            show.start_plants()
            print(f"Dashboard: {show.link}", flush=True)
            if options.browser:
                webbrowser.open(show.link)
            for _ in story(show, options.seconds):
                time.sleep(0.1)
        finally:
            show.stop()
            signal.signal(signal.SIGTERM, before)
