"""The files of deploy/: well-formed, in step with what they name, and closed to the outside."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from serving import Stack, awaited
from tether.cli.app import app
from tether.serve import config

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
yaml = pytest.importorskip("yaml")


def read(name):
    return yaml.safe_load((DEPLOY / name).read_text())


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
    """The names of everything that is measured."""
    stack = Stack(tmp_path_factory.mktemp("metrics"))
    stack.service.reset("boiler", "e")
    stack.service.act("boiler", "e", 1, 18.0, 9.0)
    awaited(stack.ask("GET", "/v1/status"))
    text = awaited(stack.ask("GET", "/metrics"))[1]
    return set(re.findall(r"^(\w+)[{ ]", text, re.MULTILINE))


def named(expression):
    return set(re.findall(r"\b(tether_\w+)", expression))


def test_the_compose_file_has_the_stack_and_binds_to_this_machine_only():
    compose = read("compose.yaml")
    assert set(compose) <= {"name", "services", "volumes"}
    services = compose["services"]
    assert set(services) == {"guard", "plant", "prometheus", "grafana"}
    kinds = {
        "build": dict, "image": str, "command": list, "volumes": list, "ports": list, "environment": dict,
        "restart": str, "read_only": bool, "cap_drop": list, "security_opt": list, "tmpfs": list, "mem_limit": str,
        "depends_on": dict | list, "healthcheck": dict,
    }  # fmt: skip
    for name, service in services.items():
        assert ("build" in service) != ("image" in service), name
        for key, value in service.items():
            assert isinstance(value, kinds[key]), f"{name}: {key}"
        for port in service.get("ports", []):
            assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            made = source in compose["volumes"] or source.endswith(".token")
            assert made or (DEPLOY / source).exists(), source
        for needed in service.get("depends_on", {}):
            assert needed in services
        if "build" in service:
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
            assert service["cap_drop"] == ["ALL"]
    commands = {command.name for command in app.registered_commands}
    assert services["plant"]["command"][1] in commands
    assert f":{8720}" in services["guard"]["ports"][0]


def test_docker_itself_takes_the_compose_file():
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode != 0:
        pytest.skip("no docker compose")
    command = [docker, "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_dockerfile_runs_as_nobody_and_copies_what_is_there():
    text = (DEPLOY / "Dockerfile").read_text()
    stage = text.split("\nFROM ")[-1]
    assert "\nUSER tether" in stage
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    assert json.loads(re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)[1])[:2] == ["tether", "serve"]


def test_its_configuration_is_good(tmp_path):
    loaded = config.load(DEPLOY / "guard" / "guard.toml")
    assert list(loaded.plants) == [read("compose.yaml")["services"]["plant"]["command"][3]]
    contract = loaded.plants["hall"].certificate.contract
    assert (contract.lam, contract.b) == (2.0, 1.0)  # what `tether plant` audits unless it is told otherwise


def test_alarms_name_metrics_that_are_there_and_each_has_a_section_of_the_runbook(metrics):
    rules = [rule for group in read("alerts.yml")["groups"] for rule in group["rules"]]
    runbook = (ROOT / "docs" / "production.md").read_text().split("## Runbook")[1]
    assert re.findall(r"^### (\w+)$", runbook, re.MULTILINE) == [rule["alert"] for rule in rules]
    for rule in rules:
        assert named(rule["expr"]) <= metrics, rule["alert"]
    scrape = read("prometheus.yml")
    assert scrape["rule_files"] == ["alerts.yml"]
    assert scrape["scrape_configs"][0]["job_name"] == "tether"
    if promtool := shutil.which("promtool"):
        done = subprocess.run(
            [promtool, "check", "rules", DEPLOY / "alerts.yml"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_grafana_dashboard_asks_for_metrics_that_are_there(metrics):
    board = json.loads((DEPLOY / "grafana" / "dashboards" / "tether.json").read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) >= 10
    asked = set()
    for panel in panels:
        for target in panel["targets"]:
            asked |= named(target["expr"])
            assert target["datasource"]["uid"] == "prometheus"
    assert asked <= metrics
    assert {"tether_margin", "tether_radius", "tether_breaches_total", "tether_journal_lag_seconds"} <= asked
    source = read("grafana/provisioning/datasources/prometheus.yaml")["datasources"][0]
    assert source["uid"] == "prometheus"


def test_the_systemd_unit_is_hardened_and_well_formed(tmp_path):
    text = (DEPLOY / "tether.service").read_text()
    for line in ("DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet="):
        assert f"\n{line}\n" in text
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    unit = tmp_path / "tether.service"
    unit.write_text(text.replace("/opt/tether/bin/tether", shutil.which("true")))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert "tether.service" not in done.stderr, done.stderr
