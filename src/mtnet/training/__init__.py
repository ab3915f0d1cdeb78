"""Meta-training in a run folder."""
