"""Compiled rollouts and learners (JAX)."""
