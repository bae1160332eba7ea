"""Pairs of texts that say the same or belong together: generated, found in raw text, or as they are given.

back_translation.py  two MarianMT models, there and back
rewriting.py         any server that speaks OpenAI's chat protocol
cache.py             what was generated, in SQLite
produce.py           texts -> cache -> backend -> cache -> pairs
mine.py              pairs and hard negatives that raw text holds already, found by an encoder
structure.py         pairs that the structure of documents gives: neighbours, title and text, halves
pairs.py             the file that `selfsent train --corpus` reads, and pairs that exist already
"""
