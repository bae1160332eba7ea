"""Static vectors of tokens from co-occurrence counts, and the vocabulary that they need."""
