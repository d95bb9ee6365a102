"""A service with a boiler, in the process of the test: as an application, and on a port of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import uvicorn

import tether
from tether.serve.app import Application
from tether.serve.config import LimitsTable
from tether.serve.plant import Plant
from tether.serve.service import Service
from tether.serve.tokens import Role, Tokens, new_token

PATH = "/v1/plants/boiler/episodes/e1"


def certificate(horizon=3, b=1.0):
    contract = tether.Contract(lam=0.5, b=b, horizon=horizon, cost_floor=1.0)
    return tether.LipschitzCertificate(contract, tether.Sensitivity(2.0, 1.0, tether.geometric(0.5)))


def prior(temperature):
    return 20.0 - temperature


def plants(**options):
    return {"boiler": Plant(certificate(), prior, low=-10.0, high=10.0, **options)}


def awaited(work):
    """The result of a coroutine; in a thread, since Playwright leaves a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class Stack:
    """An application with a token for each role, and one that is for another plant."""

    def __init__(self, folder, service=None, limits=None, waits=False):
        made = {str(role): new_token(f"the-{role}", role) for role in Role}
        made["elsewhere"] = new_token("elsewhere", Role.CONTROL, ("kiln",))
        self.tokens = {name: secret for name, (secret, _) in made.items()}
        self.file = folder / "tokens.toml"
        self.file.write_text("\n".join(entry for _, entry in made.values()))
        self.service = service or Service(plants())
        self.application = Application(self.service, Tokens(self.file), limits or LimitsTable(), waits=waits)

    async def ask(self, method, path, body=None, token="control", headers=None, content=None):
        """(status, body decoded, headers) of a request."""
        sent = {} if token is None else {"Authorization": f"Bearer {self.tokens.get(token, token)}"}
        transport = httpx.ASGITransport(self.application.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            if content is None and body is not None:
                content = json.dumps(body)
            if content is not None:
                sent["Content-Type"] = "application/json"
            answer = await client.request(method, path, content=content, headers=sent | (headers or {}))
        try:
            return answer.status_code, answer.json(), answer.headers
        except ValueError:
            return answer.status_code, answer.text, answer.headers


@contextlib.contextmanager
def listening(asgi, **options):
    """The address of an application that is served by a thread of this process."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        settings = uvicorn.Config(
            asgi, log_level="error", lifespan="off", timeout_graceful_shutdown=1, **options
        )
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(5.0)
