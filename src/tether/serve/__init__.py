"""The guard as a service: many plants and episodes at once, a journal, and an operator who can see and stop it."""
