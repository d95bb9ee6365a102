"""ACRL, the paper's Algorithm 2, with a network for the policy and a fitted model for the transition distribution g.

The algorithm box, and where each of its lines is here; with a finite class of transition functions and value iteration
on a grid, the algorithm is in `tether.exact.optimistic`, line by line.

    1  initialise the model set                   `Model.start`: nothing was seen, every parameter is possible
    2  for each episode k                         `Blocks.advance`: `recipe.batch` episodes with one policy
    3      observe the initial state s_1          `rollout.play`
    4      g^k = argmax over the set of E[V_1]    `Model.optimistic`: the end of the set along the slope of V
    5      value iteration with g^k               `Method.loss`, `Learner.step`: gradient steps on minus the value, in
                                                  episodes that g^k imagines, through the guard
    6      for each round h                       `rollout.play`
    7          play the policy through ACD        `Blocks._explore`: in the true system, in float64
    8          observe s_{h+1}                    `Model.digest`
    10     refit g-hat and its confidence set     `Model.learn`, `Model.believe`

Offline there is no model to learn (lines 4, 8 and 10): the drawn disturbances of the training episodes take its place.
"""

from __future__ import annotations

from tether.certificates import Certificate
from tether.learn.learner import Method


class ACRL(Method):
    """Maximise E[sum_h r_h] of what the guard lets through, on the augmented state s_h = (x_h, guard's memory)."""

    name = "acrl"
    title = "ACRL"
    guarded = True
    sees_memory = True

    def guard_in_training(self, certificate: Certificate) -> Certificate:
        """Line 5 plans for r_h(x_h, a_h) with a_h the projection on the safe set: the guard is inside the rollout.

        The projection is part of what is differentiated, so that the policy learns what its deviations cost later.
        """
        return certificate
