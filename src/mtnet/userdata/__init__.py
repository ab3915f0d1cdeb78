"""The user's own tables and image folders."""
