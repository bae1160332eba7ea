"""Encode any number of texts to disk."""
