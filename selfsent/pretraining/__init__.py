"""Encoders from raw text alone: a vocabulary, static word vectors, and a compact masked language model."""
