"""Corpus preparation: raw text, or pairs, to tokenised and deduplicated rows on disk.

sources.py         the names of files, folders, hub datasets and the demo corpus -> their documents
in_memory.py       texts in memory, as a file that is such a source
formats.py         lines and rows of one file, whatever its format and compression
documents.py       the text of pages, Markdown, PDF, Word, PowerPoint, Excel, mail and SQLite
unpacking.py       compressed files and other encodings as UTF-8
json_values.py     JSON without repeated keys
text_column.py     the column of a table that is its text
limits.py          what a file must not ask for
remote.py          files at a URL, datasets of the hub
python_docs.py     the demo corpus: documentation of the installed Python
settings.py        the settings, `corpus.*` of a recipe
held_out.py        documents held out for a label-free test
tokenize.py        documents -> tokenised and hashed texts
word_lookup.py     the same for tokenizers of BERT's kind, words looked up as numbers
deduplicate.py     exact and near-duplicates among them
prepare.py         all of these steps in order
statistics.py      how many texts were read, kept and dropped, and why
columns.py         columns on disk
dataset.py         the prepared corpus for training
"""
