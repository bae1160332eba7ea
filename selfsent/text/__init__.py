"""Text without a model: cleaning, sentences, pairs by the structure of a document, BM25."""
