"""Choosing an encoder: candidates are trained and judged on text that none of them has seen."""
