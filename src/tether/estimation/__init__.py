"""From logs to constants."""
