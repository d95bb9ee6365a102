"""Episodes in bulk: the compiled rollout, and one NumPy loop for everything that runs eagerly."""
