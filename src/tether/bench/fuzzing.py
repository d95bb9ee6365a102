"""`tether bench fuzz`: every endpoint under nonsense, in this process: no 5xx, and nothing changed by what is refused.

Requests are half right: a plausible one for the episode as it is, in which something may then be replaced by nonsense:
the method, the path, the token, the headers, a part of the body, or all of it. After each, everything that the service
shows is compared with what it showed before.
"""

from __future__ import annotations

import json
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tether.bench.loops import run
from tether.core.decision import AssumptionBreach
from tether.serve.app import Application
from tether.serve.config import LimitsTable, load
from tether.serve.routes import ENDPOINTS, Endpoint
from tether.serve.run import service_of
from tether.serve.tokens import Role, Tokens, new_token
from tether.systems import registry

BODY = 4096
"""Bytes of the largest body."""
OFTEN = {"act": 14, "observe": 14, "report": 3, "reset": 4, "batch": 5}
"""How often an endpoint is called, beside those that are called once."""
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "post", "")
_CONFIG = """
[journal]
path = "journal"
[access]
tokens = "tokens.toml"
[plants.own]
system = "{system}"
lam = 0.5
b = 0.5
horizon = 6
[plants.sent]
system = "{system}"
kind = "lipschitz"
prior = "client"
lam = 0.5
b = 0.5
horizon = 6
[limits]
body_bytes = {body}
requests_per_second = 1e9
open_episodes = 3
batch = 20
"""
_NUMBERS = (
    0, 1, -1, 0.5, 1e-320, 1e308, -1e308, 10**400, 2**63, 2**64, -(2**70), 1e17, 3.0, 99, 10**12, 10**12 + 1
)  # fmt: skip
_TEXTS = (
    "", "own", "e1", "../../etc/passwd", "__class__", "\x00", "\ud800", "é" * 70, "a" * 5000, "{{7*7}}", "1", "NaN",
    "$(id)", "<script>", "\u202e", "null", "' or 1=1 --",
)  # fmt: skip
_RAW = (
    b"", b"{", b"null", b"[]", b"NaN", b"{\"round\": NaN}", b"{\"round\": 1e999}", b"\xff\xfe", b"\x80\x04K\x01.",
    b"[" * 3000, b"{\"a\":" * 500, b"\"" + b"x" * 3000, b"{}" * 10, b"\xef\xbb\xbf{}", b"{\"round\":1,\"round\":2}",
    b"true", b"-", b"1e5", b" " * 4000, b"x" * (2 * BODY), b"{\"why\": \"\\ud800\"}",
)  # fmt: skip


@dataclass
class Fuzzed:
    """What came of it."""

    requests: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    """How often each status came, by call."""
    problems: list[str] = field(default_factory=list)
    """Requests that were answered with 5xx, raised, or changed something although they were refused."""
    changed: int = 0
    """Requests that were done and changed something, as they should."""
    repeated: int = 0
    """Requests that were sent once more; each got the same answer, or it is a problem."""


@dataclass
class Message:
    """A request, as a server hands it to an application."""

    call: str
    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Fuzzer:
    """Sends nonsense to a service of its own.

    Args:
        folder: For its journal.
        seed: Of the nonsense.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        made = {role: new_token(f"the-{role}", role) for role in Role}
        made_for_one, entry = new_token("the-one", Role.CONTROL, ("own",))
        entries = [text for _, text in made.values()] + [entry]
        (folder / "tokens.toml").write_text("\n".join(entries), encoding="utf-8")
        text = _CONFIG.format(system=registry.names()[0], body=BODY)
        (folder / "guard.toml").write_text(text, encoding="utf-8")
        config = load(folder / "guard.toml")
        assert config.tokens is not None
        self.service = service_of(config)
        limits: LimitsTable = config.limits
        self._asgi = Application(self.service, Tokens(config.tokens), limits).asgi
        self._tokens = {role: secret for role, (secret, _) in made.items()} | {"one": made_for_one}
        self._observation = _observation()
        self.result = Fuzzed()

    async def run(self, requests: int, report: Callable[[int], None] = lambda _: None) -> Fuzzed:
        """So many requests, one after the other."""
        state = self._state()
        for number in range(requests):
            message = self._message()
            status, answer = await self._send(message)
            state = self._judge(message, status, answer, state)
            if (
                status == 200
                and message.call in ("act", "observe", "report", "reset")
                and self._rng.random() < 0.2
            ):
                again = await self._send(message)
                self.result.repeated += 1
                if again != (status, answer):
                    self._complain(f"answered otherwise the second time: {again}", message)
                state = self._judge(message, *again, state, repeated=True)
            if number % 1000 == 0:
                report(number)
        self.service.close()
        return self.result

    def _judge(
        self, message: Message, status: int, answer: bytes, before: str, repeated: bool = False
    ) -> str:
        """Compare the state with that before, and return it."""
        self.result.requests += 1
        self.result.statuses[f"{message.call} {status}"] += 1
        after = self._state()
        if status >= 500 or status < 0:
            self._complain(f"answered {status}: {answer!r}", message)
        if after != before:
            self.result.changed += 1
            # A batch is done call by call; it is refused as a whole or not at all.
            if status != 200 or repeated or message.method != "POST":
                self._complain(f"changed something although it was answered {status}", message)
        return after

    def _complain(self, what: str, message: Message) -> None:
        self.result.problems.append(f"{what:.300} {message!r:.600}")

    def _state(self) -> str:
        status = self.service.status()
        return json.dumps([status["plants"], status["journal"]["records"]])

    async def _send(self, message: Message) -> tuple[int, bytes]:
        """The status and the body of the answer; -1 if the application raised."""
        sent: list[dict[str, Any]] = []
        chunks = [{"type": "http.request", "body": message.body, "more_body": False}]
        if len(message.body) > 2 and self._rng.random() < 0.1:
            half = len(message.body) // 2
            chunks = [
                {"type": "http.request", "body": message.body[:half], "more_body": True},
                {"type": "http.request", "body": message.body[half:], "more_body": False},
            ]

        async def receive() -> dict[str, Any]:
            return chunks.pop(0) if chunks else {"type": "http.disconnect"}

        async def send(part: Any) -> None:
            sent.append(part)

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": "",
            "method": message.method, "path": unquote(message.path), "query_string": b"", "headers": message.headers,
        }  # fmt: skip
        try:
            await self._asgi(scope, receive, send)
        except Exception as error:
            self._complain(f"raised {error!r}", message)
            return -1, b""
        body = b"".join(part.get("body", b"") for part in sent[1:])
        return int(sent[0]["status"]), body

    # What is sent.

    def _message(self) -> Message:
        rng = self._rng
        end = rng.choices(ENDPOINTS, [OFTEN.get(end.call, 1) for end in ENDPOINTS])[0]
        plant = rng.choices(("own", "sent", rng.choice(_TEXTS)), (10, 10, 1))[0]
        episode = (
            self._episode(plant, fresh=end.call == "reset") if rng.random() < 0.95 else rng.choice(_TEXTS)
        )
        path = end.path.replace("{plant}", plant).replace("{episode}", episode)
        path = (
            path
            if rng.random() < 0.97
            else path + rng.choice(("/", "//", "/x", "%00", "?a=1", "/../act", "é"))
        )
        method = end.method if rng.random() < 0.97 else rng.choice(METHODS)
        body = self._body(end, plant, episode)
        return Message(end.call, method, path, self._headers(end, body), body)

    def _episode(self, plant: str, fresh: bool) -> str:
        opened = self.service.status()["plants"].get(plant, {"episodes": []})["episodes"]
        if opened and self._rng.random() < (0.2 if fresh else 0.97):
            return str(self._rng.choice(opened)["episode"])
        return f"e{self._rng.randrange(10**6)}"

    def _headers(self, end: Endpoint, body: bytes) -> list[tuple[bytes, bytes]]:
        rng = self._rng
        right = sorted(map(str, end.roles or {Role.READER}))
        token = self._tokens[Role(rng.choice(right))]
        if rng.random() < 0.12:
            token = rng.choice((*self._tokens.values(), "", "x", token[:-1], token + "x", "\xff" * 20))
        scheme = "Bearer" if rng.random() < 0.98 else rng.choice(("bearer", "Basic", "", "Bearer Bearer"))
        kind = (
            "application/json"
            if rng.random() < 0.97
            else rng.choice(("text/plain", "", "application/x-pickle"))
        )
        length = str(len(body)) if rng.random() < 0.97 else rng.choice(("", "-1", "0", "9" * 30, "x"))
        headers = [
            (b"host", b"127.0.0.1"),
            (b"content-type", kind.encode()),
            (b"content-length", length.encode()),
        ]
        if rng.random() < 0.97:
            headers.append((b"authorization", f"{scheme} {token}".encode("latin-1")))
        return headers

    def _body(self, end: Endpoint, plant: str, episode: str) -> bytes:
        rng = self._rng
        if rng.random() < 0.04:
            return rng.choice(_RAW)
        content = self._content(end.call, plant, episode)
        if rng.random() < 0.15:
            content = self._damaged(content)
        return json.dumps(content).encode()

    def _content(self, call: str, plant: str, episode: str) -> Any:
        """A body that could be right, for the episode as it is."""
        rng = self._rng
        if call == "batch":
            kinds = [
                rng.choice(("act", "observe", "observe", "reset", "report"))
                for _ in range(rng.randrange(0, 6))
            ]
            plants = [rng.choice(("own", "sent")) for _ in kinds]
            names = [
                (each, self._episode(each, kind == "reset")) for each, kind in zip(plants, kinds, strict=True)
            ]
            return {
                "calls": [
                    {"call": kind, "plant": p, "episode": e, **self._content(kind, p, e)}
                    for kind, (p, e) in zip(kinds, names, strict=True)
                ]
            }
        number = self._round(plant, episode)
        if call == "act":
            proposal = rng.choice((0.5, 3, None, [1.0, 2.0], rng.uniform(-5, 30)))
            content = {"round": number, "observation": self._observation, "proposal": proposal}
            return content | ({"prior": rng.choice((1.0, 2.0))} if plant == "sent" else {})
        if call == "observe":
            content = {"round": number, "cost": rng.choice((1.0, 1.5, 2.0, 30.0, None))}
            return content | ({"applied": rng.uniform(0, 5)} if rng.random() < 0.2 else {})
        if call == "report":
            return {"round": max(1, number - 1), "cost": rng.choice((1.0, 1.5, 30.0))}
        return {} if call == "reset" else {"why": rng.choice(("a test", "x" * 500))}

    def _round(self, plant: str, episode: str) -> int:
        about = self.service.status()["plants"].get(plant, {"episodes": []})
        rounds = [each["account"] for each in about["episodes"] if each["episode"] == episode]
        return max(1, (rounds[0] if rounds else 1) + self._rng.choice((0, 0, 0, 0, 1, -1)))

    def _damaged(self, content: Any) -> Any:
        """The same with a part replaced, dropped or added."""
        rng = self._rng
        if isinstance(content, dict) and content and rng.random() < 0.8:
            name = rng.choice(list(content))
            rest = {key: value for key, value in content.items() if key != name}
            if rng.random() < 0.2:
                return rest
            if rng.random() < 0.1:
                return content | {rng.choice(_TEXTS): self._nonsense(2)}
            return rest | {name: self._damaged(content[name])}
        return self._nonsense(3)

    def _nonsense(self, depth: int) -> Any:
        rng = self._rng
        kind = rng.randrange(6 if depth else 4)
        if kind == 0:
            return rng.choice(_NUMBERS)
        if kind == 1:
            return rng.choice(_TEXTS)
        if kind == 2:
            return rng.choice((None, True, False))
        if kind == 3:
            return rng.uniform(-1e6, 1e6)
        if kind == 4:
            return [self._nonsense(depth - 1) for _ in range(rng.randrange(4))]
        return {rng.choice(_TEXTS): self._nonsense(depth - 1) for _ in range(rng.randrange(3))}


def _observation() -> Any:
    system = registry.find(registry.names()[0])
    env = system.env()
    episodes = system.draw(0, 1, 6)
    drawn = {name: episodes[name][0][0] for name in env.drawn_names}
    return [float(each) for each in env.observation(env.initial(), drawn)]


def fuzz(requests: int, seed: int, report: Callable[[int], None] = lambda _: None) -> Fuzzed:
    """Fuzz a service of its own, in a temporary folder.

    Args:
        requests: How many.
        seed: Of the nonsense.
        report: Called with how many are done.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionBreach)
        found: Fuzzed = run(Fuzzer(Path(folder), seed).run(requests, report))
        return found
