"""Measurements, as ratios of two things measured in one run."""
