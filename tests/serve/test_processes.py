"""Real processes: the service that is killed, a client in another language, Prometheus, and the demonstration."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

import tether
from commands import run
from serving import Stack, certificate, listening, prior
from tether.bench import serving
from tether.serve.client import Client
from tether.serve.plant import Plant
from tether.serve.service import Service
from tether.systems import registry

ROOT = Path(__file__).resolve().parents[2]
MAIN = [sys.executable, "-c", "from tether.cli.main import main; main()"]
pytestmark = pytest.mark.slow


@contextlib.contextmanager
def started(folder, *arguments):
    """A `tether` process and the first line that it prints."""
    process = subprocess.Popen(
        [*MAIN, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def written(folder):
    (folder / "boiler.json").write_text(json.dumps(certificate(horizon=6).to_dict()))
    (folder / "guard.toml").write_text(
        '[journal]\npath = "journal"\n[access]\nopen = true\n'
        '[plants.boiler]\ncertificate = "boiler.json"\nprior = "client"\nlow = -10.0\nhigh = 10.0\n'
    )


def keys(folder):
    """A certificate of our own for TLS, if openssl is there."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=guard"
    )
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return ssl.create_default_context(cafile=folder / "cert.pem")


def test_a_killed_service_comes_back_with_its_account_over_tls(tmp_path):
    written(tmp_path)
    trusted = keys(tmp_path)
    secure = ("--tls-cert", "cert.pem", "--tls-key", "key.pem")
    with started(tmp_path, "serve", "guard.toml", "--port", "0", *secure) as (process, line):
        url = re.search(r"https://127\.0\.0\.1:\d+", line)[0]
        port = url.rpartition(":")[2]
        client = Client(url, "boiler", prior=prior, sends_prior=True, deadline=20.0, verify=trusted)
        client.reset("monday")
        first = client.act(18.0, 9.0)
        client.observe(1.2)
        second = client.act(19.0, 9.0)
        assert first.decided
        assert second.decided
        process.send_signal(signal.SIGKILL)
        process.wait()
    client._client.deadline = 0.1
    client.observe(1.1)
    third = client.act(18.5, 9.0)
    assert (third.action, third.decided) == (1.5, False)
    client.observe(1.3)
    assert client.unsent == 3
    with started(tmp_path, "serve", "guard.toml", "--port", port, *secure) as (process, _):
        client._client.deadline = 20.0
        fourth = client.act(18.0, 9.0)
        assert fourth.decided
        assert client.unsent == 0
        client.observe(1.0)
        status = httpx.get(f"{url}/v1/status", verify=trusted, trust_env=False).json()
        episode = status["plants"]["boiler"]["episodes"][0]
        assert [each["applied"] for each in episode["rounds"]] == [
            first.action,
            second.action,
            1.5,
            fourth.action,
        ]
        assert episode["account"] == 5
        client.close()
        process.terminate()
        assert process.wait(20) == 0


def test_a_client_in_another_language_needs_the_protocol_only(tmp_path):
    if shutil.which("node") is None:
        pytest.skip("no node")
    stack = Stack(tmp_path, Service({"boiler": Plant(certificate(horizon=4), prior, low=-10.0, high=10.0)}))
    with listening(stack.application.asgi) as url:
        command = ["node", str(ROOT / "examples" / "node_client.mjs"), url, "boiler", "node-1"]
        environment = {"TETHER_TOKEN": stack.tokens["control"], "PATH": "/usr/bin:/bin:/usr/local/bin"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    *rounds, last = [json.loads(line) for line in done.stdout.splitlines()]
    shown = stack.service.status()["plants"]["boiler"]["episodes"][0]
    assert [each["action"] for each in rounds] == [each["action"] for each in shown["rounds"]]
    assert [each["reason"] for each in rounds] == [each["reason"] for each in shown["rounds"]]
    assert last == {"episode": "node-1", "total": pytest.approx(shown["cost"])}
    text = (ROOT / "examples" / "node_client.mjs").read_text()
    assert "import" not in text
    assert len(text.splitlines()) < 45


def test_a_real_prometheus_scrapes_the_metrics_with_its_token(tmp_path):
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus (Debian: apt-get install prometheus)")
    stack = Stack(tmp_path)
    stack.service.reset("boiler", "e")
    stack.service.act("boiler", "e", 1, 18.0, 9.0)
    (tmp_path / "token").write_text(stack.tokens["reader"])
    shutil.copy(ROOT / "deploy" / "alerts.yml", tmp_path)
    with listening(stack.application.asgi) as url:
        text = (ROOT / "deploy" / "prometheus.yml").read_text().replace("guard:8720", url.rpartition("/")[2])
        (tmp_path / "prometheus.yml").write_text(text.replace("interval: 5s", "interval: 1s"))
        command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        with listening(stack.application.asgi) as other:  # a port that is free for sure, as soon as it ends
            port = other.rpartition(":")[2]
        address = f"127.0.0.1:{port}"
        process = subprocess.Popen(
            [*command, f"--web.listen-address={address}"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        try:
            assert asked(address, "tether_decisions_total") == {"boiler": "1"}
            assert asked(address, 'tether_interventions_total{reason="too far"}') == {"boiler": "1"}
            rules = httpx.get(f"http://{address}/api/v1/rules", trust_env=False).json()["data"]["groups"][0][
                "rules"
            ]
            assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
            assert len(rules) == 10
        finally:
            process.terminate()
            process.communicate(timeout=20)


def asked(address, query):
    """What Prometheus has for a query, by plant, as soon as it has something."""
    for _ in range(150):
        with contextlib.suppress(httpx.HTTPError):
            answer = httpx.get(f"http://{address}/api/v1/query", params={"query": query}, trust_env=False)
            found = answer.json().get("data", {}).get("result", []) if answer.status_code == 200 else []
            if found:
                return {each["metric"]["plant"]: each["value"][1] for each in found}
        time.sleep(0.1)
    raise AssertionError(f"nothing for {query}")


def test_the_demonstration_ends_by_itself_and_leaves_nothing_running(tmp_path):
    command = [*MAIN, "demo", "--seconds", "8", "--no-browser", "--port", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "under guard",
        "An operator stops",
        "go on",
        "killed (SIGKILL)",
        "is back with its journal",
        "kept in",
    ):
        assert line in done.stdout, line
    url = re.search(r"http://127\.0\.0\.1:\d+", done.stdout)[0]
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_the_demonstration_and_all_of_its_processes(tmp_path):
    with started(tmp_path, "demo", "--no-browser", "--port", "0") as (process, line):
        url = re.search(r"http://127\.0\.0\.1:\d+", line)[0]
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)


def test_health_and_a_simulated_plant_as_commands(tmp_path, monkeypatch, capsys):
    stack = Stack(tmp_path, Service({"p": _tank()}))
    (tmp_path / "plc.token").write_text(stack.tokens["control"] + "\n")
    with listening(stack.application.asgi) as url:
        assert run(monkeypatch, capsys, "health", url)[:2] == (0, "ready\n")
        options = (
            "--system",
            "cooling",
            "--lam",
            "1",
            "--b",
            "1",
            "--pause",
            "0",
            "--episodes",
            "1",
            "--horizon",
            "6",
        )
        code, out, _ = run(
            monkeypatch,
            capsys,
            "plant",
            url,
            "p",
            *options,
            "--token-file",
            tmp_path / "plc.token",
            "--deadline",
            "9",
        )
        assert code == 0
        assert "episode 1: kept in every round" in out
        assert "rounds without the guard: 0" in out
    assert run(monkeypatch, capsys, "health", url)[0] == 2


def _tank():
    env = registry.find("cooling").env()
    made = tether.Structured(env.contract(1.0, 1.0, 6), env.structure)
    return Plant(made, env.prior, env.low, env.high, env.norm)


def test_the_measurement_of_the_service_runs(monkeypatch):
    monkeypatch.setattr(serving, "PLANTS", (2,))
    monkeypatch.setattr(serving, "PACED", (2, 4, 0.01))
    taken = {each.what: each for each in serving.bench_serve(0, 1, 10)}
    assert taken["act + observe / bare, 2 plants, p50"].value > 0.0
    assert taken["decisions a second, 2 plants"].unit == "1/s"
    memory = list(serving.bench_memory(0, 480, "power", lambda done, of: None))
    assert memory[0].value > 10.0
