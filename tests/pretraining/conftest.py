"""A made-up text of two subjects, and a cache of its own, for every test of this folder."""

from two_subjects import own_cache, prepared, skip, text

__all__ = ["own_cache", "prepared", "skip", "text"]
