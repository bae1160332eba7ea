"""Positives that say the same in other words: by way of another language, from a chat server, or as they are given.

translate.py  MarianMT there and back
rewrite.py    any chat server that speaks OpenAI's protocol
given.py      pairs that exist already
cache.py      what was paid for, on disk
produce.py    texts -> cache -> backend -> cache -> pairs
pairs.py      the file that `selfsent train --corpus` reads
"""
