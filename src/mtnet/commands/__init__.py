"""What `mtnet ...` does, a file for each kind of work."""
