"""The client of `tether serve`: a control loop's side of it, with a deadline and something to play if nothing comes."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, TypeVar

import httpx

from tether.core import validate
from tether.serve.loop import AT_ONCE, LATER, Loop, NoBackup, Played, Sent, plain

__all__ = ["AsyncClient", "Client", "NoBackup", "Played", "Refusal"]

T = TypeVar("T")
PAUSE = 0.01
"""Seconds before the first further try; each one after it waits twice as long."""


class Refusal(RuntimeError):
    """The service will not guard this episode: no such plant, no such token, too many episodes."""


class AsyncClient:
    """`Client` for asyncio: the same methods, awaited."""

    def __init__(
        self,
        url: str,
        plant: str,
        token: str | None = None,
        *,
        prior: Callable[[Any], Any] | None = None,
        backups: Mapping[str, Callable[[Any], Any]] | None = None,
        sends_prior: bool = False,
        deadline: float = 1.0,
        verify: Any = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.deadline = validate.number("deadline", deadline, above=0.0)
        self._loop = Loop(plant, prior, backups or {}, sends_prior)
        self._refused = False
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers, verify=verify, transport=transport, timeout=None, trust_env=False
        )

    @property
    def episode(self) -> str:
        """The name of the episode; empty before the first."""
        return self._loop.episode

    @property
    def unsent(self) -> int:
        """How many calls the service has not answered yet."""
        return len(self._loop.outbox)

    async def reset(self, episode: str | None = None) -> str:
        """Begin an episode, and return its name."""
        self._loop.begin(episode or f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(4)}")
        await self._send()
        if self._refused:
            raise Refusal(str(self._loop.problem))
        return self.episode

    async def act(self, observation: Any, proposal: Any) -> Played:
        """What to play in this round; the backup's action if the guard does not answer in time."""
        self._loop.ask(observation, proposal)
        return self._loop.play(await self._send(wanted=True))

    async def observe(
        self,
        cost: Any,
        *,
        applied: Any = None,
        revealed: Mapping[str, Any] | None = None,
        reward: Any = None,
        next_observation: Any = None,
        override: str | None = None,
    ) -> None:
        """Say what came of the round; what cannot be sent now is sent with the next call."""
        numbers = {"revealed": revealed, "reward": reward, "next_observation": next_observation}
        others = {name: plain(value) for name, value in numbers.items()}
        self._loop.report(cost, applied, others | {"override": override})
        await self._send()

    async def report(self, round: int, cost: Any) -> None:  # noqa: A002
        """Say what a round cost that was observed without its cost."""
        self._loop.report_late(round, cost)
        await self._send()

    async def flush(self) -> bool:
        """Send what waits; whether everything has been answered."""
        await self._send()
        return not self._loop.outbox

    async def aclose(self) -> None:
        """Close the connection."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _send(self, wanted: bool = False) -> dict[str, Any] | None:
        """Send the outbox until it is empty or the deadline is reached; the answer to the present round, if it came.

        If that is what is `wanted`, the rest waits for the next call.
        """
        answer, pause, self._refused = None, PAUSE, False
        try:
            async with asyncio.timeout(self.deadline):
                while self._loop.outbox and not self._refused and not (wanted and answer is not None):
                    before = len(self._loop.outbox)
                    answer = self._loop.settle(await self._post(self._loop.outbox[:AT_ONCE])) or answer
                    if len(self._loop.outbox) == before:
                        await asyncio.sleep(pause)
                        pause *= 2.0
        except TimeoutError:
            pass
        return answer

    async def _post(self, calls: list[dict[str, Any]]) -> list[Sent]:
        """What came back for each call; nothing if nothing did. The same calls may be posted again."""
        try:
            response = await self._http.post("/v1/batch", json={"calls": calls})
            content = response.json()
            if response.status_code == 200:
                results = [Sent(**each) for each in content["answers"]]
                self._refused = any(each.status not in (200, *LATER) for each in results)
                return results
            self._loop.problem = str(content["error"])
            self._refused = response.status_code not in LATER  # a token, or calls, that are not understood
        except httpx.HTTPError as error:
            self._loop.problem = f"{type(error).__name__}: {error}"
        except (ValueError, KeyError, TypeError) as error:
            self._loop.problem = f"the service answered what is no answer: {error!r}"
        return []


class Client:
    """A plant's control loop, guarded by a service: the calls of `tether.Guard`, and an action whatever happens.

    If the service does not answer within the deadline, the backup that its last answer named is played here (the prior
    unless the certificate has others), and reported as `applied` when the service is back. By the theorem of
    docs/crash-theorem.md that keeps the promise.

    Args:
        url: Of the service, such as `https://guard:8720`.
        plant: Its name.
        token: Of the role `control`.
        prior: The trusted policy, `prior(observation) -> action`. Without it there is nothing to play when no answer
            comes, and `act` raises `NoBackup` then.
        backups: Policies for the certificate's other backups, by name.
        sends_prior: Whether the service's plant has `prior = "client"`.
        deadline: Seconds that `act` may take, further tries included; so may `reset` and `observe`.
        verify: As in httpx: False, or an `ssl.SSLContext` for certificates of your own.
        transport: Of httpx, for tests.

    Example:
        >>> client = Client("http://127.0.0.1:9", "boiler", prior=lambda t: 20.0 - t, deadline=0.05)  # nobody is there
        >>> _ = client.reset("monday")
        >>> played = client.act(18.0, proposal=9.0)
        >>> played.action, played.decided, played.reason
        (2.0, False, 'no answer')
        >>> client.observe(1.2)
        >>> client.unsent  # it will be told: reset, act, observe with applied=2.0
        3
        >>> client.close()
    """

    def __init__(self, url: str, plant: str, token: str | None = None, **options: Any) -> None:
        self._client = AsyncClient(url, plant, token, **options)
        # A loop and a thread of its own, so that it works where a loop runs already, as in a notebook.
        self._runner = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._runner.run_forever, name="tether-client", daemon=True)
        self._thread.start()

    @property
    def episode(self) -> str:
        """The name of the episode; empty before the first."""
        return self._client.episode

    @property
    def unsent(self) -> int:
        """How many calls the service has not answered yet."""
        return self._client.unsent

    def reset(self, episode: str | None = None) -> str:
        """Begin an episode, and return its name.

        Args:
            episode: Letters, digits or ._-, at most 64; one that has never been used. A fresh one by default.

        Raises:
            Refusal: The service will not guard it.
        """
        return self._run(self._client.reset(episode))

    def act(self, observation: Any, proposal: Any) -> Played:
        """What to play in this round; the backup's action if the guard does not answer in time.

        Raises:
            NoBackup: There was no answer, and no policy to play instead.
        """
        self._client._loop.ask(observation, proposal)  # the prior is called here, in the thread of the caller
        return self._client._loop.play(self._run(self._client._send(wanted=True)))

    def observe(self, cost: Any, **outcome: Any) -> None:
        """Say what came of the round; what cannot be sent now is sent with the next call.

        Args:
            cost: The round's cost; None if it is not known yet.
            **outcome: applied (what was really played, if it was something else), override (who decided so, and why),
                revealed, reward, next_observation.
        """
        self._run(self._client.observe(cost, **outcome))

    def report(self, round: int, cost: Any) -> None:  # noqa: A002
        """Say what a round cost that was observed without its cost.

        Args:
            round: Counted from 1.
            cost: Its cost.
        """
        self._run(self._client.report(round, cost))

    def flush(self) -> bool:
        """Send what waits; whether everything has been answered."""
        return self._run(self._client.flush())

    def close(self) -> None:
        """Close the connection; the episode stays as it is."""
        if not self._runner.is_closed():
            self._run(self._client.aclose())
            self._runner.call_soon_threadsafe(self._runner.stop)
            self._thread.join()
            self._runner.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._runner).result()
