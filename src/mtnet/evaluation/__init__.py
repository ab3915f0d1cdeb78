"""Trained runs on new tasks."""
