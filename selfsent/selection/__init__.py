"""Choose an encoder for a text, or settings for a training."""
