"""Encode and prepare on a cluster of Ray: a scheduling layer over the functions that one process runs."""
