"""A server of embeddings and of search: OpenAI's protocol and that of text-embeddings-inference."""
