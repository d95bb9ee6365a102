"""The service over HTTP: who may ask, what was asked, and what the service answers to it.

One event loop. The service is called as it is, which takes microseconds; only where an answer waits for a disk is it
called in a thread, so that the others need not wait for that disk.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import Any, NamedTuple

import msgspec
from starlette.routing import Route, Router

from tether.serve import board, messages, replies
from tether.serve.config import NAME, LimitsTable
from tether.serve.limits import Rate, retry_after
from tether.serve.metrics import CONTENT_TYPE, Metrics
from tether.serve.routes import ENDPOINTS, Endpoint, openapi
from tether.serve.service import Service
from tether.serve.tokens import Everybody, Holder, Tokens

log = logging.getLogger("tether.serve")
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

THREADS = 64
"""Answers that can wait for the disk at once; they share its commits."""
TICK = 0.4
"""Seconds between two messages to a dashboard."""
HEARTBEAT = 15.0
"""Seconds after which a dashboard hears something even if nothing has changed."""
JSON = b"application/json"
STATUS = {
    replies.Unknown: 404,
    replies.Conflict: 409,
    replies.Refused: 422,
    replies.Full: 429,
    replies.Unavailable: 503,
}
"""What each refusal of the service is in HTTP."""
_LOCAL = re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")


class Problem(Exception):
    """A request that is not done."""

    def __init__(self, status: int, error: str, wait: float = 0.0) -> None:
        super().__init__(error)
        self.status, self.error, self.wait = status, error, wait


class Answer(NamedTuple):
    """What is sent back."""

    body: bytes
    status: int = 200
    kind: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Application:
    """The application; `asgi` is what a server runs.

    Args:
        service: Which does it all.
        tokens: Who may do what.
        limits: How much.
        waits: Whether an answer of the service waits for a disk.
    """

    def __init__(
        self,
        service: Service,
        tokens: Tokens | Everybody,
        limits: LimitsTable | None = None,
        *,
        waits: bool = False,
    ) -> None:
        self.service, self.tokens, self.limits = service, tokens, limits or LimitsTable()
        self.version = metadata.version("tether-rl")
        self.metrics = Metrics(service, lambda: tokens.stale, self.ready, self.version)
        self._rate = Rate(self.limits.requests_per_second)
        self._pool = ThreadPoolExecutor(THREADS, "tether") if waits else None
        self._board = board.Board(service)
        self._watchers = 0
        self._page = _page()
        self._openapi = messages.encoded(openapi(self.version))
        routes = [Route(end.path, _Caller(self, end), methods=[end.method]) for end in ENDPOINTS]
        self.asgi = Router(routes, redirect_slashes=False, default=_nowhere)

    def ready(self) -> bool:
        """Whether the service can decide."""
        status = self.service.status()
        journal = status["journal"]
        return status["stopped"] is None and (journal is None or journal["failure"] is None)

    # The endpoints, by the name of their call.

    async def act(self, body: messages.Act, plant: str, episode: str, _: Holder) -> Answer:
        """`Service.act`."""
        return await self._do(
            self.service.act, plant, _name(episode), body.round, body.observation, body.proposal, body.prior
        )

    async def observe(self, body: messages.Observe, plant: str, episode: str, _: Holder) -> Answer:
        """`Service.observe`."""
        return await self._do(
            self.service.observe,
            plant,
            _name(episode),
            body.round,
            body.cost,
            body.revealed,
            body.applied,
            body.reward,
            body.next_observation,
            body.override,
        )

    async def report(self, body: messages.Report, plant: str, episode: str, _: Holder) -> Answer:
        """`Service.report`."""
        return await self._do(self.service.report, plant, _name(episode), body.round, body.cost)

    async def reset(self, _body: messages.Reset, plant: str, episode: str, _: Holder) -> Answer:
        """`Service.reset`."""
        return await self._do(self.service.reset, plant, _name(episode))

    async def end(self, body: messages.Reason, plant: str, episode: str, holder: Holder) -> Answer:
        """`Service.end`."""
        return await self._do(self.service.end, plant, _name(episode), holder.name, body.why)

    async def prior_now(self, body: messages.Reason, plant: str, _: str, holder: Holder) -> Answer:
        """`Service.prior_now` of one plant."""
        return await self._do(self.service.prior_now, plant, holder.name, body.why)

    async def resume(self, body: messages.Reason, plant: str, _: str, holder: Holder) -> Answer:
        """`Service.resume` of one plant."""
        return await self._do(self.service.resume, plant, holder.name, body.why)

    async def prior_now_all(self, body: messages.Reason, _p: str, _e: str, holder: Holder) -> Answer:
        """`Service.prior_now` of every plant."""
        return await self._do(self.service.prior_now, None, holder.name, body.why)

    async def resume_all(self, body: messages.Reason, _p: str, _e: str, holder: Holder) -> Answer:
        """`Service.resume` of every plant."""
        return await self._do(self.service.resume, None, holder.name, body.why)

    async def batch(self, body: messages.Batch, _p: str, _e: str, holder: Holder) -> Answer:
        """`Service.batch`; calls for plants that the token is not for are refused one by one."""
        if len(body.calls) > self.limits.batch:
            raise Problem(413, f"a batch has at most {self.limits.batch} calls, got {len(body.calls)}")
        self.spend(holder, len(body.calls) - 1.0)
        allowed = [call for call in body.calls if holder.plants is None or call.plant in holder.plants]
        done = iter(await self._run(self.service.batch, [_arguments(call) for call in allowed]))
        answers = []
        for call in body.calls:
            if holder.plants is not None and call.plant not in holder.plants:
                answers.append({"status": 403, "error": f"the token {holder.name} is not for {call.plant}"})
                continue
            reply = next(done)
            if isinstance(reply, replies.ServiceError):
                answers.append({"status": _status(reply), "error": str(reply)})
            else:
                answers.append({"status": 200, "answer": reply._asdict()})
        return Answer(messages.encoded({"answers": answers}))

    async def status(self, *_: object) -> Answer:
        """`Service.status`."""
        return Answer(messages.encoded({"version": self.version, **self.service.status()}))

    async def openapi(self, *_: object) -> Answer:
        """The document."""
        return Answer(self._openapi)

    async def healthz(self, *_: object) -> Answer:
        """The process lives, since this is answered."""
        return Answer(b'{"alive":true}')

    async def readyz(self, *_: object) -> Answer:
        """Whether it can decide."""
        ready = self.ready()
        return Answer(messages.encoded({"ready": ready}), 200 if ready else 503)

    async def dashboard(self, *_: object) -> Answer:
        """The page; what it shows it asks for with a token."""
        return self._page

    async def prometheus(self, *_: object) -> Answer:
        """The metrics."""
        return Answer(self.metrics.text(), kind=CONTENT_TYPE.encode())

    async def events(self, holder: Holder, receive: Receive, send: Send) -> None:
        """What changes, for as long as somebody listens."""
        self._watchers += 1
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await send(_start(200, b"text/event-stream", ()))
            seen, silent = 0, 0.0
            me = {"name": holder.name, "role": holder.role, "all": holder.plants is None}
            while not gone.done():
                before = seen
                seen, message = self._board.since(seen)
                silent = 0.0 if message is not None else silent + TICK
                if message is not None:
                    content = messages.encoded(message if before else {"me": me, **message})
                    await send(_more(b"data: " + content + b"\n\n"))
                elif silent >= HEARTBEAT:
                    silent = 0.0
                    await send(_more(b": still here\n\n"))
                await asyncio.wait({gone}, timeout=TICK)
        finally:
            self._watchers -= 1
            gone.cancel()

    # What they share.

    async def _do(self, method: Callable[..., replies.Reply], *arguments: Any) -> Answer:
        return Answer(messages.encoded(await self._run(method, *arguments)))

    async def _run(self, method: Callable[..., Any], *arguments: Any) -> Any:
        if self._pool is None:
            return method(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._pool, method, *arguments)

    def admit(self, end: Endpoint, headers: Mapping[bytes, bytes], plant: str | None) -> Holder | None:
        """Who calls, if they may; None where nobody is asked.

        Raises:
            Problem: They may not.
        """
        if isinstance(self.tokens, Everybody) and not _LOCAL.fullmatch(headers.get(b"host", b"")):
            raise Problem(403, "without tokens it is for this machine only: call it by 127.0.0.1")
        if end.roles is None:
            return None
        sent = headers.get(b"authorization")
        holder = self.tokens.holder(None if sent is None else sent.decode("latin-1"))
        if holder is None:
            raise Problem(401, "send a known token: Authorization: Bearer TOKEN")
        if end.method == "POST" and end.call != "batch":
            allowed = holder.may(end.roles, plant)
        else:
            allowed = holder.role in end.roles or isinstance(self.tokens, Everybody)
        if not allowed:
            roles = " or ".join(sorted(end.roles))
            raise Problem(
                403, f"{end.call} is for {roles} of {plant or 'every plant'}; {holder.name} is {holder.role}"
            )
        self.spend(holder, 1.0)
        if end.call == "events" and self._watchers >= self.limits.watchers:
            raise Problem(429, f"{self._watchers} dashboards are open, the most there may be", wait=10.0)
        return holder

    def spend(self, holder: Holder, permits: float) -> None:
        """Take permits of a caller's rate."""
        wait = self._rate.wait(holder.name, permits)
        if wait > 0.0:
            raise Problem(429, f"{holder.name} may ask {self._rate.per_second:g} times a second", wait=wait)


class _Caller:
    """One endpoint as an application of its own."""

    def __init__(self, application: Application, end: Endpoint) -> None:
        self._application, self._end = application, end
        name = "prometheus" if end.call == "metrics" else end.call
        self._method: Callable[..., Awaitable[Any]] = getattr(application, name)
        self._decoder = None if end.body is None else msgspec.json.Decoder(end.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        application, end = self._application, self._end
        try:
            headers = dict(scope["headers"])
            names = scope["path_params"]
            plant, episode = names.get("plant"), names.get("episode")
            holder = application.admit(end, headers, plant)
            body = await self._body(headers, receive)
            if end.call == "events" and holder is not None:
                application.metrics.count(end.call, 200, time.perf_counter() - start)
                return await application.events(holder, receive, send)
            answer: Answer = await self._method(body, plant, episode, holder)
        except Problem as problem:
            answer = _refusal(problem)
        except replies.ServiceError as error:
            answer = _refusal(Problem(_status(error), str(error), wait=1.0))
        except Exception:
            log.exception("%s %s", scope["method"], scope["path"])
            answer = _refusal(Problem(500, "a mistake in tether; the log has it. Play the backup."))
        await send(_start(answer.status, answer.kind, answer.headers, len(answer.body)))
        await send({"type": "http.response.body", "body": answer.body})
        application.metrics.count(end.call, answer.status, time.perf_counter() - start)
        return None

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> Any:
        """What was sent, decoded."""
        if self._decoder is None:
            return None
        most = self._application.limits.body_bytes
        too_large = Problem(413, f"a body has at most {most} bytes")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > most:
            raise too_large
        if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != JSON:
            raise Problem(415, "Content-Type must be application/json")
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Problem(400, "the body broke off")
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > most:
                raise too_large
        try:
            return self._decoder.decode(body or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(400, f"the body is not as expected: {error}") from None


async def _nowhere(scope: Any, _receive: Any, send: Any) -> None:
    """What is no endpoint."""
    if scope["type"] == "http":
        answer = _refusal(Problem(404, "there is no such endpoint; /openapi.json lists them"))
        await send(_start(answer.status, answer.kind, answer.headers, len(answer.body)))
        await send({"type": "http.response.body", "body": answer.body})
    elif scope["type"] == "websocket":
        await send({"type": "websocket.close"})


def _name(episode: str) -> str:
    if not NAME.fullmatch(episode):
        raise Problem(422, f"an episode is named by 1 to 64 letters, digits or ._-, got {episode[:80]!r}")
    return episode


def _arguments(call: messages.Call) -> tuple[str, dict[str, Any]]:
    """A call of a batch as `Service.batch` takes it."""
    name = str(call.__struct_config__.tag)
    return name, {field: getattr(call, field) for field in call.__struct_fields__}


def _status(error: replies.ServiceError) -> int:
    return next((code for kind, code in STATUS.items() if isinstance(error, kind)), 422)


def _refusal(problem: Problem) -> Answer:
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if problem.status == 401:
        headers = ((b"www-authenticate", b"Bearer"),)
    if problem.status in (429, 503):
        headers = ((b"retry-after", retry_after(problem.wait).encode()),)
    error = problem.error.encode(
        errors="replace"
    ).decode()  # a name in a path may be no text that can be sent
    return Answer(messages.encoded({"error": error}), problem.status, headers=headers)


def _start(
    status: int, kind: bytes, headers: tuple[tuple[bytes, bytes], ...], length: int | None = None
) -> dict[str, Any]:
    sent = [(b"content-type", kind), (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
    if length is not None:
        sent.append((b"content-length", str(length).encode()))
    return {"type": "http.response.start", "status": status, "headers": [*sent, *headers]}


def _more(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _page() -> Answer:
    """The dashboard, with a policy that lets it run its own script and talk to this service, and nothing else."""
    text = board.page()
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = ((b"content-security-policy", policy.encode()), (b"referrer-policy", b"no-referrer"))
    return Answer(text.encode(), kind=b"text/html; charset=utf-8", headers=headers)
