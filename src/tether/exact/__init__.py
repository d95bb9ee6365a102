"""The paper's exact algorithm (Algorithm 2) and its theorems."""
