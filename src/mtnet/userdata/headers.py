"""What the headers of files say about the inputs of a network."""

from mtnet.userdata.trees import TREES

COLUMN = {"name": str, "mean": float, "spread": float, "levels": ([str], None)}
SCHEMA = {"task": str, "inputs": [COLUMN], "target": COLUMN, "missing": str}
SCHEMA |= {"waves?": int, "base?": (TREES, None)}
INPUTS = {"schema?": SCHEMA, "size?": int, "colour?": bool, "invert?": bool}
"""Columns of a table, or the size of images."""
