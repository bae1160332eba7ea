"""Labelled files of your own, and public ones, under MTEB's protocols."""
