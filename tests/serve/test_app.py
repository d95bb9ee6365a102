"""The service over HTTP: what is answered, what is refused, and that what is refused changes nothing."""

from __future__ import annotations

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from serving import PATH, Stack, awaited, certificate, plants
from tether.bench import fuzzing
from tether.serve import replies
from tether.serve.app import STATUS, Application
from tether.serve.config import LimitsTable
from tether.serve.plant import Plant
from tether.serve.routes import ENDPOINTS, openapi
from tether.serve.service import Service
from tether.serve.tokens import Everybody

ACT = {"round": 1, "observation": 18.0, "proposal": 9.0}


@pytest.fixture
def stack(tmp_path):
    return Stack(tmp_path)


def ask(stack, *arguments, **options):
    return awaited(stack.ask(*arguments, **options))


def test_a_round_over_http_is_the_round_of_the_service(stack):
    status, receipt, headers = ask(stack, "POST", f"{PATH}/reset", {})
    assert (status, receipt["account"], headers["cache-control"]) == (200, 1, "no-store")
    status, answer, _ = ask(stack, "POST", f"{PATH}/act", ACT)
    assert (status, round(answer["action"], 3), answer["reason"], answer["backup"]) == (
        200,
        2.75,
        "too far",
        "prior",
    )
    assert ask(stack, "POST", f"{PATH}/act", ACT)[1] == answer
    status, problem, _ = ask(stack, "POST", f"{PATH}/act", ACT | {"proposal": 8.0})
    assert status == 409
    assert "the first one stands" in problem["error"]
    assert (
        ask(stack, "POST", f"{PATH}/observe", {"round": 1, "cost": 1.2, "applied": answer["action"]})[0]
        == 200
    )
    status, seen, _ = ask(stack, "GET", "/v1/status", token="reader")
    assert status == 200
    assert seen["plants"]["boiler"]["episodes"][0]["cost"] == 1.2
    status, ended, _ = ask(stack, "POST", f"{PATH}/end", {"why": "enough"}, token="operator")
    assert (status, ended["over"]) == (200, True)


def test_a_late_cost_is_reported_when_it_is_known(stack):
    ask(stack, "POST", f"{PATH}/reset", {})
    ask(stack, "POST", f"{PATH}/act", ACT)
    assert ask(stack, "POST", f"{PATH}/observe", {"round": 1, "cost": None})[0] == 200
    assert ask(stack, "POST", f"{PATH}/report", {"round": 1, "cost": 1.5})[0] == 200
    assert stack.service.status()["plants"]["boiler"]["episodes"][0]["cost"] == 1.5
    assert ask(stack, "POST", f"{PATH}/report", {"round": 1, "cost": 1.6})[0] == 409


def test_an_operator_stops_and_resumes_with_name_and_reason(stack):
    ask(stack, "POST", f"{PATH}/reset", {})
    status, done, _ = ask(stack, "POST", "/v1/plants/boiler/prior-now", {"why": "smoke"}, token="operator")
    assert (status, done["who"], done["why"]) == (200, "the-operator", "smoke")
    answer = ask(stack, "POST", f"{PATH}/act", ACT)[1]
    assert (answer["action"], answer["reason"]) == (2.0, "operator")
    for nothing in (
        {},
        {"why": ""},
        {"why": " \n"},
        {"why": 3},
        {"why": "x" * 501},
        {"why": "x", "who": "me"},
    ):
        assert ask(stack, "POST", "/v1/resume", nothing, token="operator")[0] == 400
    assert ask(stack, "POST", "/v1/resume", {"why": "all is well"}, token="operator")[0] == 200
    assert stack.service.status()["plants"]["boiler"]["held"] is None


def test_a_batch_is_done_call_by_call_and_each_is_answered(stack):
    names = {"plant": "boiler", "episode": "e1"}
    calls = [
        {"call": "reset", **names},
        {"call": "act", **names, **ACT},
        {"call": "observe", **names, "round": 1, "cost": 1.2},
        {"call": "observe", **names, "round": 7, "cost": 1.2},
        {"call": "act", **names, **ACT, "round": 2},
        {"call": "reset", "plant": "kiln", "episode": "e1"},
    ]
    status, done, _ = ask(stack, "POST", "/v1/batch", {"calls": calls})
    assert status == 200
    assert [each["status"] for each in done["answers"]] == [200, 200, 200, 404, 200, 404]
    assert done["answers"][4]["answer"]["round"] == 2
    assert "has not been asked" in done["answers"][3]["error"]
    elsewhere = ask(stack, "POST", "/v1/batch", {"calls": calls}, token="elsewhere")[1]["answers"]
    assert [each["status"] for each in elsewhere] == [403, 403, 403, 403, 403, 404]
    assert ask(stack, "POST", "/v1/batch", {"calls": calls[:1] * 1001})[0] == 413


ROLES = {"control", "operator", "reader", "elsewhere", "nobody", None}
BODIES = {"act": ACT, "observe": {"round": 1, "cost": 1.0}, "report": {"round": 1, "cost": 1.0}, "reset": {}}


@pytest.mark.parametrize("end", ENDPOINTS, ids=lambda end: end.call)
def test_only_its_roles_may_call_an_endpoint_and_others_change_nothing(end, stack):
    ask(stack, "POST", f"{PATH}/reset", {})
    before = stack.service.status()
    path = end.path.replace("{plant}", "boiler").replace("{episode}", "e1")
    body = {"calls": []} if end.call == "batch" else BODIES.get(end.call, {"why": "a test"})
    for role in ROLES:
        known = role not in ("nobody", None)
        allowed = end.roles is None or (
            known and (role in end.roles or (role == "elsewhere" and not end.body))
        )
        if end.call == "batch" and role == "elsewhere":
            allowed = True  # its calls are refused one by one
        if allowed:
            continue
        status, problem, headers = ask(stack, end.method, path, body if end.body else None, token=role)
        assert status == (403 if known else 401), role
        assert problem["error"]
        assert ("www-authenticate" in headers) == (not known)
    assert stack.service.status() == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"round": 1, "observation": NaN}', 400),
        (b'{"round": 1, "observation": 1e999}', 400),
        (b'{"round": 1.5, "observation": 1}', 400),
        (b'{"round": 0, "observation": 1}', 400),
        (b'{"round": 1, "observation": "18"}', 400),
        (b'{"round": 1, "observation": [[[1]]]}', 400),
        (b'{"round": 1, "observation": 18, "prior": 2}', 422),
        (b'{"round": 1, "observation": 18, "else": 2}', 400),
        (b'{"round": 4, "observation": 18}', 422),
        (b'{"round": 1, "observation": null}', 422),  # the prior raises
        (b"[" * 60000, 400),
        (b"x" * 65537, 413),
    ],
)
def test_a_body_that_is_not_as_expected_is_refused_and_changes_nothing(body, status, stack):
    ask(stack, "POST", f"{PATH}/reset", {})
    before = json.dumps(stack.service.status())
    given, problem, _ = ask(stack, "POST", f"{PATH}/act", content=body)
    assert given == status, problem
    assert json.dumps(stack.service.status()) == before


def test_a_prior_of_another_shape_is_refused_in_a_gap_too_and_stops_nobody(tmp_path):
    stack = Stack(tmp_path, Service({"boiler": Plant(certificate(), None)}))
    ask(stack, "POST", f"{PATH}/reset", {})
    second = ACT | {"round": 2, "prior": [1.0, 2.0]}
    assert ask(stack, "POST", f"{PATH}/act", second)[1]["reason"] == "gap"
    assert ask(stack, "POST", f"{PATH}/act", ACT | {"prior": 1.0})[0] == 422
    assert ask(stack, "POST", f"{PATH}/act", ACT | {"prior": [1.0, 1.0]})[0] == 200
    for number in (2, 1):
        outcome = {"round": number, "cost": 1.0, "applied": [1.0, number]}
        assert ask(stack, "POST", f"{PATH}/observe", outcome)[0] == 200
    assert ask(stack, "POST", f"{PATH}2/reset", {})[0] == 200


def test_content_types_methods_paths_and_lengths_that_are_not_expected_are_refused(stack):
    wrong = {"Content-Type": "text/plain"}  # what another page's form can send without asking
    assert ask(stack, "POST", f"{PATH}/reset", {}, headers=wrong)[0] == 415
    assert ask(stack, "POST", f"{PATH}/reset", {}, headers={"Content-Length": "9" * 30})[0] == 413
    assert ask(stack, "GET", f"{PATH}/reset")[0] == 405
    assert ask(stack, "GET", "/v1/nothing")[0] == 404
    for episode in ("a b", "..%2f", "x" * 65, "%00"):
        assert ask(stack, "POST", f"/v1/plants/boiler/episodes/{episode}/reset", {})[0] in (404, 422)
    assert stack.service.status()["plants"]["boiler"]["episodes"] == []


def test_too_many_episodes_and_too_many_requests_are_told_when_to_come_again(tmp_path):
    stack = Stack(
        tmp_path, Service(plants(open_episodes=1)), LimitsTable(requests_per_second=3.0, watchers=0)
    )
    assert ask(stack, "POST", f"{PATH}/reset", {})[0] == 200
    status, problem, headers = ask(stack, "POST", f"{PATH}2/reset", {})
    assert (status, headers["retry-after"]) == (429, "1")
    assert "end one" in problem["error"]
    assert ask(stack, "GET", "/v1/status")[0] == 200
    status, problem, _ = ask(stack, "GET", "/v1/status")
    assert status == 429
    assert "3 times a second" in problem["error"]
    assert ask(stack, "GET", "/v1/events", token="reader")[0] == 429
    assert ask(stack, "GET", "/healthz", token=None)[0] == 200


def test_without_tokens_only_this_machine_may_call_it_and_by_its_own_name(tmp_path):
    stack = Stack(tmp_path)
    stack.application = Application(stack.service, Everybody())
    assert ask(stack, "POST", f"{PATH}/reset", {}, token=None)[0] == 200
    assert ask(stack, "POST", "/v1/prior-now", {"why": "x"}, token=None)[0] == 200
    # A page of another site whose name was made to lead here.
    status, _, _ = ask(
        stack, "POST", "/v1/resume", {"why": "x"}, token=None, headers={"Host": "evil.example"}
    )
    assert status == 403
    assert stack.service.status()["plants"]["boiler"]["held"] == {"who": "anybody", "why": "x"}


def test_a_service_that_cannot_write_is_not_ready_and_says_so(stack, monkeypatch):
    assert ask(stack, "GET", "/readyz", token=None)[:2] == (200, {"ready": True})
    journal = {"failure": None, "lag": 0.0}
    for wrong in ({"journal": journal | {"failure": "no space left"}}, {"stopped": "done in part"}):
        failed = {"plants": {}, "journal": journal, "stopped": None} | wrong
        monkeypatch.setattr(stack.service, "status", lambda failed=failed: failed)
        assert ask(stack, "GET", "/readyz", token=None)[:2] == (503, {"ready": False})

    def full(*_):
        raise replies.Unavailable("no space left")

    monkeypatch.setattr(stack.service, "act", full)
    status, problem, headers = ask(stack, "POST", f"{PATH}/act", ACT)
    assert (status, problem["error"], headers["retry-after"]) == (503, "no space left", "1")


def test_every_refusal_of_the_service_has_a_status_and_a_mistake_of_ours_is_a_500(stack, monkeypatch, caplog):
    kinds = {
        each for each in vars(replies).values() if isinstance(each, type) and issubclass(each, Exception)
    }
    assert kinds - {replies.ServiceError} == set(STATUS)

    def wrong(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(stack.service, "act", wrong)
    with caplog.at_level(logging.ERROR):
        status, problem, _ = ask(stack, "POST", f"{PATH}/act", ACT)
    assert status == 500
    assert "ZeroDivisionError" in caplog.text
    assert "Zero" not in problem["error"]


def test_where_answers_wait_for_a_disk_they_wait_in_threads(tmp_path):
    stack = Stack(tmp_path, Service(plants(), tmp_path / "journal", "group"), waits=True)

    async def several():
        resets = [stack.ask("POST", f"{PATH}{i}/reset", {}) for i in range(8)]
        return [status for status, _, _ in await asyncio.gather(*resets)]

    assert awaited(several()) == [200] * 8
    stack.service.close()


def test_metrics_say_what_was_decided_and_how_long_it_took(stack):
    ask(stack, "POST", f"{PATH}/reset", {})
    ask(stack, "POST", f"{PATH}/act", ACT)
    ask(stack, "POST", f"{PATH}/act", ACT, token="reader")
    ask(stack, "POST", "/v1/prior-now", {"why": "x"}, token="operator")
    status, text, headers = ask(stack, "GET", "/metrics", token="reader")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    for line in (
        'tether_decisions_total{plant="boiler"} 1.0',
        'tether_interventions_total{plant="boiler",reason="too far"} 1.0',
        'tether_requests_total{call="act",status="200"} 1.0',
        'tether_requests_total{call="act",status="403"} 1.0',
        'tether_request_seconds_count{call="act"} 2.0',
        'tether_request_seconds_bucket{call="act",le="+Inf"} 2.0',
        'tether_prior_now{plant="boiler"} 1.0',
        'tether_open_episodes{plant="boiler"} 1.0',
        'tether_breaches_total{plant="boiler"} 0.0',
        "tether_ready 1.0",
        "tether_tokens_stale 0.0",
        "tether_journal_lag_seconds 0.0",
    ):
        assert line in text.splitlines(), line
    margin = next(line for line in text.splitlines() if line.startswith("tether_margin{"))
    answer = ask(stack, "POST", f"{PATH}/act", ACT)[1]
    assert float(margin.split()[1]) == answer["margin"]
    assert f'tether_radius{{plant="boiler"}} {answer["radius"]}' in text


def test_the_openapi_document_has_every_endpoint_with_the_types_that_are_decoded(stack):
    status, document, _ = ask(stack, "GET", "/openapi.json", token=None)
    assert status == 200
    assert document == json.loads(json.dumps(openapi(stack.application.version)))
    assert len([1 for path in document["paths"].values() for _ in path]) == len(ENDPOINTS)
    act = document["paths"]["/v1/plants/{plant}/episodes/{episode}/act"]["post"]
    assert act["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Act"}
    assert document["components"]["schemas"]["Act"]["required"] == ["round", "observation"]
    assert set(document["components"]["schemas"]["Answer"]["properties"]) == set(replies.Answer._fields)
    assert {"409", "422", "503"} <= set(act["responses"])


def test_the_page_may_run_its_own_script_only(stack):
    status, text, headers = ask(stack, "GET", "/", token=None)
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "script-src 'sha256-" in policy
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def fuzzed(requests, seed):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(fuzzing.fuzz, requests, seed).result()


def test_nonsense_gets_no_5xx_and_changes_nothing():
    found = fuzzed(2500, seed=0)
    assert found.problems == []
    assert {name.split()[0] for name in found.statuses} == {end.call for end in ENDPOINTS}
    assert found.changed > 300
    assert found.repeated > 20


def test_the_fuzzer_notices_a_refusal_that_changes_something_an_error_and_another_answer(monkeypatch):
    act = Service.act

    def careless(self, plant, episode, number, *others):
        answer = act(self, plant, episode, number, *others)
        if number == 2:
            raise replies.Refused("no, and yet it was done")
        return answer

    monkeypatch.setattr(Service, "act", careless)
    assert any("changed something although" in each for each in fuzzed(600, seed=1).problems)

    def broken(self, plant, episode, *others):
        raise ZeroDivisionError

    monkeypatch.setattr(Service, "act", broken)
    assert any("answered 500" in each for each in fuzzed(100, seed=1).problems)
    calls = iter(range(10**6))
    monkeypatch.setattr(Service, "act", lambda self, *a: act(self, *a)._replace(margin=float(next(calls))))
    assert any("otherwise the second time" in each for each in fuzzed(600, seed=1).problems)
