"""Encoders from nothing but raw text: a vocabulary, static word vectors, and a compact masked language model."""
