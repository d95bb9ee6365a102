"""Where series come from: one module a source."""
