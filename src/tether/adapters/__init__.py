"""Gymnasium and what builds on it."""
