"""The paper's evaluation: what is run, its results, figures and report."""
