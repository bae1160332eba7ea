"""An index of a corpus on disk: its texts, their vectors and words, searched by meaning, by words, or by both."""
