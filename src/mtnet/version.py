"""The version of mtnet; the package, its files and the build read it here."""

__version__ = "0.1.0"
