"""The commands `tether serve`, `token`, `health` and `plant`: the guard as a service, and what goes with it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell

Url = Annotated[
    str, typer.Argument(help="Address of the service, such as http://127.0.0.1:8720.", show_default=False)
]


@dataclass(frozen=True)
class ServeOptions:
    """What `tether serve` can be asked for."""

    config: Annotated[
        Path, typer.Argument(help="TOML file: plants, journal, access, limits.", show_default=False)
    ]
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any.", min=0, max=65535)] = 8720
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain for https, PEM.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None
    check: Annotated[
        bool, typer.Option("--check", help="Check the file, its plants and its tokens, and do no more.")
    ] = False


def serve(options: ServeOptions) -> None:
    """Guard plants over HTTP: act, observe, an operator's controls, metrics and a dashboard."""
    from tether.serve import config as configuration
    from tether.serve import run, tokens

    if (options.tls_cert is None) != (options.tls_key is None):
        raise ValueError("--tls-cert and --tls-key go together")
    tls = None
    if options.tls_cert is not None and options.tls_key is not None:
        tls = run.Tls(options.tls_cert, options.tls_key)
        for file in tls:
            if not file.is_file():
                raise FileNotFoundError(f"{file} not found; expected a PEM file")
    config = configuration.load(options.config)
    configuration.require_loopback(config, options.host)
    holders = () if config.tokens is None else tokens.read_tokens(config.tokens)
    for holder in holders:
        for plant in holder.plants or ():
            if plant not in config.plants:
                raise ValueError(f"{config.tokens}: {holder.name} is for {plant!r}, which is no plant here")
    if options.check:
        known = f"{len(holders)} tokens" if holders else "open to this machine"
        shell.console.print(f"{options.config} is good: {', '.join(config.plants)}; {known}.", soft_wrap=True)
        return
    table = config.journal
    kept = "no journal" if table is None else f"journal {table.path}, durability {table.durability}"

    def announce(url: str) -> None:
        # Flushed, and in one piece: whoever started this reads the address from it.
        print(f"Guarding {', '.join(config.plants)} on {url} ({kept}); dashboard: {url}/", flush=True)

    run.serve(config, options.host, options.port, tls, announce=announce)


@dataclass(frozen=True)
class TokenOptions:
    """What `tether token` can be asked for."""

    name: Annotated[str, typer.Argument(help="Who will hold it, such as plc-7 or ana.", show_default=False)]
    role: Annotated[str, typer.Option(help="control, operator or reader.")] = "control"
    plants: Annotated[str, typer.Option(help="Only for these plants, comma-separated; all by default.")] = ""
    file: Annotated[
        Path | None, typer.Option(help="File of tokens to add the entry to; shown without it.")
    ] = None
    out: Annotated[Path | None, typer.Option(help="File for the token itself; shown without it.")] = None


def token(options: TokenOptions) -> None:
    """Make a token: the secret for its holder, and the entry that lets it in."""
    from tether.core import validate
    from tether.serve import tokens

    validate.choice("--role", options.role, tuple(map(str, tokens.Role)))
    plants = tuple(shell.listed(options.plants)) or None
    secret, entry = tokens.new_token(options.name, tokens.Role(options.role), plants)
    if options.out is not None:
        with options.out.open("x", encoding="utf-8") as file:
            os.chmod(options.out, 0o600)  # noqa: PTH101
            file.write(secret + "\n")
    else:
        print(f"The token of {options.name}, which is not kept anywhere: {secret}")
    if options.file is None:
        print(f"Add this to the file of tokens:\n\n{entry}", end="")
        return
    before = options.file.read_text(encoding="utf-8") if options.file.exists() else ""
    draft = options.file.with_name(f".{options.file.name}.new")
    draft.touch(0o600)
    draft.write_text(f"{before}\n{entry}" if before else entry, encoding="utf-8")
    try:
        tokens.read_tokens(draft)
        draft.replace(options.file)
    finally:
        draft.unlink(missing_ok=True)
    print(f"{options.name} was added to {options.file}.")


@dataclass(frozen=True)
class HealthOptions:
    """What `tether health` can be asked for."""

    url: Url
    timeout: Annotated[float, typer.Option(help="Seconds.", min=0.01)] = 1.0


def health(options: HealthOptions) -> None:
    """Ask a service whether it can decide; exit code 2 if not."""
    import httpx

    try:
        answer = httpx.get(f"{options.url.rstrip('/')}/readyz", timeout=options.timeout, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise OSError(f"{options.url} does not answer: {error}") from error
    if answer.status_code != 200:
        raise OSError(f"{options.url} is not ready: {answer.text}")
    print("ready")


@dataclass(frozen=True)
class PlantOptions:
    """What `tether plant` can be asked for."""

    url: Url
    plant: Annotated[str, typer.Argument(help="Its name in the service's configuration.", show_default=False)]
    system: Annotated[str, typer.Option(help=f"What to simulate: {shell.SYSTEMS}.", show_default=False)]
    lam: shell.Lam = 2.0
    b: shell.B = 1.0
    horizon: Annotated[int, typer.Option(help="Rounds of an episode.", min=1)] = 24
    token_file: Annotated[Path | None, typer.Option(help="File with a token of the role control.")] = None
    pause: Annotated[float, typer.Option(help="Seconds that a round takes.", min=0.0)] = 0.5
    deadline: Annotated[float, typer.Option(help="Seconds to wait for the guard.", min=0.001)] = 0.3
    episodes: Annotated[int | None, typer.Option(help="Stop after so many; never by default.", min=1)] = None
    seed: shell.Seed = 0


def plant(options: PlantOptions) -> None:
    """Simulate a plant whose control loop asks a service, with a learner, and audit the promise after each round.

    Exit code 2 if the promise was broken, as no crash and no learner may do.
    """
    from tether.serve import simulated
    from tether.serve.client import Client
    from tether.systems import registry

    lam, b = shell.promise(options.lam, options.b)
    system = registry.find(options.system)
    secret = None if options.token_file is None else options.token_file.read_text(encoding="utf-8").strip()
    policies = simulated.policies_of(system.env(), lam, b, options.horizon)
    with Client(options.url, options.plant, secret, backups=policies, deadline=options.deadline) as client:
        rounds = simulated.live(
            client, system, lam, b, horizon=options.horizon, seed=options.seed, pause=options.pause
        )
        begun, alone = 0, 0
        for each in rounds:
            begun += each.round == 1
            alone += not each.decided
            if not each.kept:
                raise ValueError(f"the promise was BROKEN: {each}")
            if each.round == options.horizon:
                print(
                    f"{time.strftime('%H:%M:%S')} {options.plant} episode {begun}: kept in every round; cost "
                    f"{each.cost:.4g} of {each.bound:.4g}, reward {each.gained:+.4g} to the prior's; "
                    f"rounds without the guard: {alone}",
                    flush=True,
                )
                alone = 0
                if begun == options.episodes:
                    break
