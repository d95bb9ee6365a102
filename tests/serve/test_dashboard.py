"""The dashboard: what it shows, in a real browser, and that an operator can stop a plant with it."""

from __future__ import annotations

import pytest

from serving import Stack, certificate, listening, plants, prior
from tether.serve.board import Board
from tether.serve.plant import Plant
from tether.serve.service import Service


@pytest.fixture
def service():
    return Service({"boiler": Plant(certificate(horizon=8), prior, low=-10.0, high=10.0), **_kilns()})


def _kilns():
    return {"kiln": plants()["boiler"]}


def play(service, rounds=3, episode="monday", proposal=9.0):
    service.reset("boiler", episode)
    for number in range(1, rounds + 1):
        answer = service.act("boiler", episode, number, 18.0, proposal)
        service.observe("boiler", episode, number, 1.25, applied=answer.action)


def only(message, name="boiler"):
    return next(each for each in message["plants"] if each["name"] == name)


def board_of(service):
    now = [0.0]

    def clock():
        now[0] += 10.0
        return now[0]

    return Board(service, clock)


def test_the_board_tells_what_has_changed_since_it_was_last_asked(service):
    board = board_of(service)
    seen, message = board.since(0)
    assert message["whole"]
    assert {each["name"] for each in message["plants"]} == {"boiler", "kiln"}
    assert board.since(seen) == (seen, None)
    play(service)
    seen, message = board.since(seen)
    assert not message["whole"]
    assert [each["name"] for each in message["plants"]] == ["boiler"]
    assert message["log"][0]["text"] == "round 3 of monday: too far"
    late, whole = board.since(0)  # somebody who comes later
    assert late == seen
    assert len(whole["plants"]) == 2


def test_the_bound_that_is_shown_is_never_more_than_the_true_one(service):
    play(service, rounds=6)
    episode = only(board_of(service).since(0)[1])["episode"]
    contract = certificate(horizon=8).contract
    assert [each["cost"] for each in episode["rounds"]] == pytest.approx([1.25 * h for h in range(1, 7)])
    for each in episode["rounds"]:
        # Whatever the prior costs, at least the floor, it is no more than what is certain.
        assert each["bound"] >= each["cost"]
        least = contract.bound(contract.cost_floor * each["round"], each["round"])
        assert each["bound"] <= contract.bound(each["cost"], each["round"]) + 1e-9
        assert each["bound"] >= least - 2.0 * (1.0 + contract.lam)
    assert episode["bound"] == episode["rounds"][-1]["bound"]
    steps = [
        after["bound"] - before["bound"]
        for before, after in zip(episode["rounds"], episode["rounds"][1:], strict=False)
    ]
    assert min(steps) >= (1.0 + contract.lam) * contract.cost_floor + contract.b - 1e-9
    assert episode["rounds"][0]["wished"] == 7.0
    assert 0.0 < episode["rounds"][0]["moved"] <= episode["rounds"][0]["radius"] + 1e-9


@pytest.mark.filterwarnings("ignore::tether.AssumptionBreach")
def test_breaches_and_controls_are_in_the_log_once(service):
    board = board_of(service)
    seen, _ = board.since(0)
    play(service, rounds=1)
    service.act("boiler", "monday", 2, 18.0, 9.0)
    service.observe("boiler", "monday", 2, 0.5)  # below the floor
    service.act("boiler", "monday", 3, 18.0, 9.0)
    service.prior_now(None, "ana", "smoke")
    service.resume("boiler", "ana", "no smoke")
    seen, message = board.since(seen)
    texts = [entry["text"] for entry in message["log"]]
    assert [text for text in texts if "breach in episode" in text] == [
        text for text in texts if "breach" in text
    ][-1:]
    assert "prior now, by ana: smoke" in texts
    assert [entry["plant"] for entry in message["log"] if "resume" in entry["text"]] == ["boiler"]
    assert next(entry for entry in message["log"] if "smoke" in entry["text"])["kind"] == "warn"
    assert only(message)["episode"]["breach"].startswith("the cost was 0.5")
    assert [each["bound"] is None for each in only(message)["episode"]["rounds"]] == [False, True, True]
    assert only(message)["episode"]["bound"] is None
    service.end("boiler", "monday", "ana", "over")
    episode = only(board.since(seen)[1])["episode"]
    assert episode["over"]
    assert len(episode["rounds"]) == 3


def test_proposals_that_are_no_actions_have_no_distance(service):
    service.reset("boiler", "e")
    service.act("boiler", "e", 1, 18.0, [1.0, None])
    shown = only(board_of(service).since(0)[1])["episode"]["rounds"][0]
    assert shown["wished"] is None
    assert shown["cost"] is None


@pytest.fixture
def show(browser, service, tmp_path):
    """Open the page with a token; whatever the browser complains about fails the test."""
    stack, contexts, complaints = Stack(tmp_path, service), [], []
    with listening(stack.application.asgi) as url:

        def open_page(role="operator", width=1280, scheme="light"):
            context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
            contexts.append(context)
            page = context.new_page()
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("request", lambda request: request.url.startswith(url) or complaints.append(request.url))
            token = stack.tokens.get(role)
            page.goto(f"{url}/#token={token}" if token else url)
            return page

        yield open_page
        for context in contexts:
            context.close()
    assert [each for each in complaints if "401" not in each] == []


def fact(page, name, plant="boiler"):
    return page.locator(f"[data-plant={plant}] [data-fact='{name}'] dd")


@pytest.mark.slow
def test_the_page_shows_costs_bounds_decisions_and_lives(show, service):
    play(service)
    page = show()
    boiler = page.locator("[data-plant=boiler]")
    boiler.locator("[data-chart=cost] svg").wait_for()
    assert "token" not in page.url  # it is taken out of the address at once
    assert page.locator("#who").inner_text() == "the-operator, operator"
    assert fact(page, "cost so far").inner_text() == "3.75"
    assert boiler.locator("[data-chart=set] circle").count() == 3
    assert "round 3 of monday: too far" in page.locator("#log").inner_text()
    answer = service.act("boiler", "monday", 4, 18.0, 9.0)
    service.observe("boiler", "monday", 4, 1.25, applied=answer.action)
    page.locator("[data-plant=boiler] [data-fact='round'] dd", has_text="5").wait_for()
    assert boiler.locator("[data-chart=set] circle").count() == 4
    for width, scheme in ((1280, "dark"), (360, "light")):
        narrow = show(width=width, scheme=scheme)
        narrow.locator("[data-chart=cost] svg").first.wait_for()
        assert narrow.evaluate("document.documentElement.scrollWidth") <= width
        ground = narrow.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"dark": "rgb(15, 18, 23)", "light": "rgb(246, 247, 249)"}[scheme]


@pytest.mark.slow
def test_an_operator_stops_one_plant_and_all_of_them_with_a_reason(show, service):
    play(service)
    page = show()
    page.locator("[data-plant=boiler] [data-do=stop]").click()
    page.locator("#confirm-yes").click()
    assert service.status()["plants"]["boiler"]["held"] is None  # not without a reason
    page.locator("#why").fill("<b>smoke</b>")
    page.locator("#confirm-yes").click()
    page.locator("[data-plant=boiler] .note").wait_for()
    assert service.status()["plants"]["boiler"]["held"] == {"who": "the-operator", "why": "<b>smoke</b>"}
    assert "by the-operator: <b>smoke</b>" in page.locator("[data-plant=boiler] .note").inner_text()
    page.locator("#stop-all").click()
    page.locator("#why").fill("everything")
    page.locator("#confirm-no").click()
    assert service.status()["plants"]["kiln"]["held"] is None
    page.locator("#stop-all").click()
    page.locator("#why").fill("everything")
    page.locator("#confirm-yes").click()
    page.locator("[data-plant=kiln].stopped").wait_for()
    assert service.act("boiler", "monday", 4, 18.0, 9.0).reason == "operator"
    page.locator("#resume-all").click()
    page.locator("#why").fill("well again")
    page.locator("#confirm-yes").click()
    page.locator("[data-plant=boiler]:not(.stopped)").wait_for()
    assert service.status()["plants"]["boiler"]["held"] is None


@pytest.mark.slow
def test_a_reader_sees_no_buttons_and_nobody_sees_nothing(show, service):
    play(service)
    page = show("reader")
    page.locator("[data-plant=boiler] [data-chart=cost]").wait_for()
    assert page.locator("#stop-all").is_hidden()
    assert page.locator("[data-do]").count() == 0
    stranger = show(None)
    stranger.locator("#login").wait_for()
    assert stranger.locator("[data-plant]").count() == 0
    stranger.locator("#token").fill("wrong")
    stranger.locator("#login button").click()
    stranger.get_by_text("This token is not known here.").wait_for()
