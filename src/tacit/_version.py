"""The version, readable without installed metadata."""

__version__ = "0.1.0"
