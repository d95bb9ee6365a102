"""The promise: contract, guard, audit and monitor. NumPy only; nothing above this layer is imported."""
