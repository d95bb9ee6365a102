"""Asynchronous work that is waited for, also where an event loop is running already, as in a notebook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """What the work gives, in a loop and a thread of its own.

    The loop is uvloop's where it is installed: a load must not be slower than what it measures.
    """
    runner: Callable[[Any], Any] = asyncio.run
    try:
        import uvloop

        runner = uvloop.run
    except ModuleNotFoundError:
        pass
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(runner, work).result()
