"""The report in a real browser: no errors, controls that work, and numbers that are those of results.json."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from made_results import GUARDED, HORIZON, made_results
from tether.paper.report import render

SECTION = {
    "title": "Theory",
    "text": "Bounds beside what was measured.",
    "columns": ["lam", "bound"],
    "rows": [[2.0, 123.25]],
}


@pytest.fixture(scope="module")
def studies():
    return [made_results(), made_results("inference")]


@pytest.fixture(scope="module")
def file(studies, tmp_path_factory):
    page = tmp_path_factory.mktemp("report") / "report.html"
    page.write_text(render(studies, [SECTION]), encoding="utf-8")
    return page


@pytest.fixture
def show(browser, file):
    """Open the page; whatever the browser complains about, or fetches, fails the test."""
    contexts, complaints = [], []

    def open_page(width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: complaints.append(request.url) if "report.html" not in request.url else None,
        )
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def scores(results, **wanted):
    return [row for row in results["scores"] if all(row[key] == value for key, value in wanted.items())]


def numbers(page, selector):
    """The raw numbers behind the cells of a table, row by row."""
    return page.evaluate(
        """selector => [...document.querySelectorAll(selector + ' tbody tr')].map(row =>
           [...row.cells].map(cell => cell.dataset.value === undefined ? null : Number(cell.dataset.value)))""",
        selector,
    )


def drawn(page, chart):
    return page.locator(f"#{chart} svg[role=img]").inner_html()


def test_numbers_on_the_page_are_those_of_the_results(show, studies):
    page, results = show(), studies[0]
    lams = results["grid"]["lams"]
    for chart, field, methods in (
        ("chart-regret", "regret", ["prior", "random+acd", "rl+acd", "crl"]),
        ("chart-violations", "violation_rate", results["grid"]["methods"][:-1]),
    ):
        ways = [(method, "tight" if method in GUARDED else None) for method in methods]
        ways += [("acrl", rule) for rule in results["grid"]["rules"]]  # one family, whichever is chosen
        shown = numbers(page, f"#{chart}")
        for lam, row in zip(lams, shown, strict=True):
            for (method, rule), value in zip(ways, row[1:], strict=True):
                mine = scores(results, mode="offline", method=method, rule=rule, lam=lam, b=2.0)
                assert value == pytest.approx(np.mean([each[field] for each in mine]), rel=1e-12)
    costs = numbers(page, "#chart-worst-cost")
    acrl = scores(results, mode="offline", method="acrl", rule="tight", lam=2.0, b=2.0)
    assert costs[-1][1] == pytest.approx(np.mean([row["worst_cost"] for row in acrl]))
    assert costs[-1][2] == 154.0
    curve = [row["regret"] for row in results["exploration"] if same_way(row, "acrl", "tight", 2.0, 2.0)]
    assert [row[-1] for row in numbers(page, "#chart-episodes")] == pytest.approx(
        np.mean(curve, axis=0).tolist()
    )
    ways = {(row["mode"], row["method"], row["rule"], row["lam"], row["b"]) for row in results["scores"]}
    assert len(numbers(page, "#scores")) == len(ways)
    assert page.locator("#tile-tests").get_attribute("data-value") == "0"
    assert page.locator("#tile-limit").get_attribute("data-value") == "0.75"
    assert (
        "50 % with the certificate paper, 75 % with the certificate tight"
        in page.locator("#summary").inner_text()
    )
    assert page.locator("#additions h2").inner_text() == "Theory"
    assert numbers(page, "#additions") == [[2.0, 123.25]]
    assert page.locator("#made pre").inner_text() == results["provenance"]["command"]


def same_way(row, method, rule, lam, b):
    return (row["method"], row["rule"], row["lam"], row["b"]) == (method, rule, lam, b)


def test_controls_change_the_charts(show, studies):
    page = show()
    for act, chart in (
        (lambda: page.locator("label[for='b-6']").click(), "chart-regret"),
        (lambda: page.locator("#lam").press("ArrowRight"), "chart-worst-cost"),
        (lambda: page.locator("label[for='rule-paper']").click(), "chart-regret"),
        (lambda: page.locator("label[for='mode-online']").click(), "chart-violations"),
    ):
        before = drawn(page, chart)
        act()
        assert drawn(page, chart) != before, chart
    assert page.locator("#lam-value").inner_text() == "6"
    wanted = scores(studies[0], mode="online", method="acrl", rule="paper", lam=6.0, b=6.0)
    assert numbers(page, "#chart-cost")[-len(studies[0]["grid"]["rules"])][1] == pytest.approx(
        np.mean([row["cost"] for row in wanted])
    )
    page.get_by_role("button", name="Sustainable AI inference").click()
    assert "tether reproduce inference" in page.locator("#made").inner_text()


def test_the_player_plays_steps_and_obeys_the_keyboard(show, studies):
    page = show()
    track = next(
        each
        for each in studies[0]["tracks"]
        if same_way(each, "acrl", "tight", 2.0, 2.0) and each["episode"] == 1
    )
    page.locator("#player-episode").select_option("1")
    player = page.locator("#player")
    player.focus()
    player.press("Home")
    for at in (1, 2, 3):
        assert page.locator("#readout b").first.inner_text().startswith(f"Round {at} of {HORIZON}")
        assert float(page.locator("#cost-now").get_attribute("data-value")) == track["cost"][at - 1]
        assert float(page.locator("#bound-now").get_attribute("data-value")) == track["bound"][at - 1]
        player.press("ArrowRight")
    player.press("Home")
    player.press(" ")
    assert page.locator("#play").get_attribute("aria-label") == "Pause"
    page.get_by_text(f"Round 2 of {HORIZON}").wait_for()
    page.locator("#play").click()
    assert page.locator("#play").get_attribute("aria-label") == "Play"
    assert page.locator("#player [data-band]").count() == 1
    page.locator("#player-method").select_option("rl")
    assert page.locator("#player [data-band]").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(show, scheme):
    page = show(375, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    for chart in page.locator("figure.chart").all():
        assert chart.bounding_box()["width"] <= 375
    ground, ink = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    light = [sum(map(int, re.findall(r"\d+", color)[:3])) for color in (ground, ink)]
    assert (light[0] > light[1]) == (scheme == "light")


def test_the_data_in_the_page_is_the_results_file(show, studies):
    held = show().evaluate("document.getElementById('data').textContent")
    assert json.loads(held)["results"] == studies
