"""Judging encoders without labels, by the structure of documents."""
