"""Adapted networks without JAX: as plain layers, applied with NumPy."""
