"""Raw text, or pairs, to rows on disk: read, clean, cut into sentences, hold out, tokenise, deduplicate, account for.

read.py         files, folders, hub datasets, the demo corpus -> documents
clean.py        a document -> clean sentences
heldout.py      documents set apart for a test that needs no labels
tokens.py       texts -> word pieces
stage.py        all of that, streamed into columns on disk
deduplicate.py  which of those rows are copies, or nearly
preparation.py  the settings, and the way through all of these
account.py      what became of every text
store.py        the columns
cache.py        folders that are whole or not there
opened.py       the corpus as the trainer sees it
documents.py    the same of whole documents, of which only spans are read
"""
