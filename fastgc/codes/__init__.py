"""Gradient codes, one file per scheme."""
