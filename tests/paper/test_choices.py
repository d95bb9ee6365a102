"""What is said about numbers that the paper does not print."""

from __future__ import annotations

from tether.paper.studies.choices import Budget, Months, RandomNetwork, Scaled, evidence

PRINTED = {
    "reference_optimal_reward_used_for_regret": 90.0,
    "paper_text": {"rl_mean_cost": 210.0, "crl_violation_rate": {"lambda_2": 0.3, "lambda_6": 0.9}},
}
SCALED = [
    Scaled("rl", 1.0, 100.0, 150.0, 300.0),
    Scaled("rl", 0.9, 96.0, 200.0, 350.0),
    Scaled("acrl", 1.0, 60.0, 40.0, 70.0),
    Scaled("acrl", 0.9, 61.0, 50.0, 75.0),
]
MONTHS = Months(28.0, 0.05, 140.0, 160.0, 300.0)
RANDOM = [RandomNetwork(0.1, 0, 0.2, 55.0, 63.0), RandomNetwork(1.0, 0, 7.0, 90.0, 800.0)]
BUDGETS = [
    Budget(2.0, 0.0, [70.0, 80.0], [0.1, 0.2], 131.0),
    Budget(2.0, 4.0, [150.0, 160.0], [0.5, 0.5], 131.0),
    Budget(6.0, 0.0, [170.0], [0.3], 243.0),
    Budget(6.0, 4.0, [250.0], [0.4], 243.0),
]


def test_each_experiment_says_what_it_shows():
    found = {row["on"]: row["text"] for row in evidence(PRINTED, SCALED, MONTHS, RANDOM, BUDGETS)}
    assert "the authors' network costs 140 to 160" in found["rl cost"]
    assert "scaled by 0.9 theirs earns 96.0 instead of 100.0 and costs 200;" in found["rl cost"]
    assert (
        "costs their network more than 300; with its actions scaled by 0.9 it is 350"
        in found["rl worst cost"]
    )
    assert "it earns 61.0 instead of 60.0 and costs 50 / 75 instead of 40 / 70" in found["acrl cost"]
    random = found["random network"]
    assert "55.0 to 63.0 for 0.1, 90.0 to 800.0 for 1, counted" in random
    budget = found["crl budget, lam = 2"]
    assert "15% for B = 0 H to 50% for B = 4 H; 30.0% lies between B = 0 H and 4 H" in budget
    assert "the average cost is 75 to 155, and its bound for B = H b is 131" in budget
    budget = found["crl budget, lam = 6"]
    assert budget == "The rate follows B: 30% for B = 0 H to 40% for B = 4 H (`tether reproduce published`)."


def test_without_trainings_nothing_is_said_of_the_budget():
    found = [row["on"] for row in evidence(PRINTED, SCALED, MONTHS, RANDOM, [])]
    assert found == ["rl cost", "rl worst cost", "random network", "acrl cost"]
