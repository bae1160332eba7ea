"""Pairs of texts that say the same or belong together: found in raw text, generated, or as they are given.

mine.py              pairs and hard negatives that raw text holds already, found by an encoder
near_pairs.py        near-paraphrases and hard negatives among vectors
structure.py         pairs that the structure of documents gives: neighbours, title and text, halves
translate.py         two MarianMT models, there and back
rewrite.py           any server that speaks OpenAI's chat protocol
produce.py           texts -> cache -> translation or rewriting -> cache -> pairs
cache.py             what was generated, in SQLite
convert.py           pairs that exist already
write.py             the pairs file that `selfsent train` reads
"""

from selfsent.runtime.imports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
