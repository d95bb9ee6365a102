"""A configured service on a socket: what `tether serve` starts."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import uvicorn

from tether.core.decision import AssumptionBreach
from tether.core.journal.journal import Journal
from tether.serve.app import Application
from tether.serve.config import Config, require_loopback
from tether.serve.service import Service
from tether.serve.tokens import Everybody, Tokens

log = logging.getLogger("tether.serve")
CONNECTIONS = 2000
"""At once; more are answered with 503."""
GRACE = 1
"""Seconds in which open requests may finish; the journal holds what was answered."""


class Tls(NamedTuple):
    """A server's certificate and its key, PEM files."""

    certificate: Path
    key: Path


def service_of(config: Config) -> Service:
    """The service that a configuration describes, as its journal left it."""
    table = config.journal
    if table is None:
        return Service(config.plants)
    bytes_of_segment = max(1, int(table.segment_megabytes * 2**20))
    journal = Journal(table.path, table.durability, segment_bytes=bytes_of_segment, keep=table.keep or None)
    return Service(config.plants, journal)


def application_of(config: Config, service: Service) -> Application:
    """The application of a service."""
    tokens = Everybody() if config.tokens is None else Tokens(config.tokens)
    waits = config.journal is not None and config.journal.durability != "process"
    return Application(service, tokens, config.limits, waits=waits)


def serve(
    config: Config, host: str, port: int, tls: Tls | None = None, *, announce: Callable[[str], None] = print
) -> None:
    """Serve until the process is told to stop.

    Args:
        config: What was read by `load`.
        host: Address to listen on.
        port: 0 for any that is free.
        tls: For https.
        announce: Called with the address as soon as it is listened on.
    """
    require_loopback(config, host)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    warnings.simplefilter("ignore", AssumptionBreach)  # breaches are answered, counted and shown
    # The server takes signals while it runs, and raises them once more when it has stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listener = _listen(host, port)
    service = service_of(config)
    application = application_of(config, service)
    if service.recovered is not None:
        log.info("the journal was read: %s", service.recovered)
    scheme = "http" if tls is None else "https"
    shown = f"[{host}]" if ":" in host else host
    settings = uvicorn.Config(
        application.asgi,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=GRACE,
        ssl_certfile=None if tls is None else str(tls.certificate),
        ssl_keyfile=None if tls is None else str(tls.key),
    )
    settings.load()
    gc.collect()
    gc.freeze()  # what is there from the start is not looked through for garbage while somebody waits
    announce(f"{scheme}://{shown}:{listener.getsockname()[1]}")
    try:
        uvicorn.Server(settings).run(sockets=[listener])
    finally:
        service.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(
            CONNECTIONS
        )  # from now on who calls is not refused, and is answered as soon as all is ready
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen on {host}, port {port}: {error.strerror}") from error
    return listener
