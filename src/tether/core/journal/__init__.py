"""The journal: append-only segments with checksums, from which an account is brought back exactly."""
