"""The commands of `mtnet`, one file per command; `main(arguments)` in each parses and runs it."""
