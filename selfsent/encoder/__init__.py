"""Everything we ask of a SentenceTransformer beyond its own methods: load, pool, steer dropout, embed, encode, save."""
