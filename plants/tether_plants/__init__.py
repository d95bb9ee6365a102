"""Environments that other people published, guarded by tether; `python -m tether_plants --help`."""
