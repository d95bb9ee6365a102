"""Learners and policies."""
