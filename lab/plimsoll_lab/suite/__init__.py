"""A question: read from TOML, typed, and expanded into points and trials.

This package imports nothing else of ours: neither hosts nor records.
"""
