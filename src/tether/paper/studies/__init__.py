"""Studies of what the authors printed and published of the paper's own two systems.

Everything else in `tether.paper` runs for every installed system and names none. What is here is bound to a system by
nature: it compares with numbers, networks, data and parameters that the authors gave (or left open) for carbon-aware
scheduling and for AI inference, or with the theorems on a small version of the first.
"""
