"""A classifier from a few labels, and topics from none."""
