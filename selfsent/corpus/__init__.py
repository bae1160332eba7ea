"""Corpus preparation: raw text, or pairs, to tokenised and deduplicated rows on disk.

read.py         files, folders, hub datasets, the demo corpus and texts in memory -> documents
formats.py      lines and rows of one file, whatever its format and compression
clean.py        a document -> clean sentences
heldout.py      documents held out for a label-free test
tokenize.py     documents -> tokenised and hashed texts, streamed into columns on disk
dedup.py        exact and near-duplicates among them
prepare.py      the settings, and all of these steps in order
statistics.py   how many texts were read, kept and dropped, and why
columns.py      columns on disk
dataset.py      the prepared corpus for training
sample.py       documents drawn by content hash, for evaluation
"""
