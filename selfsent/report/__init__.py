"""Draw runs as one HTML page."""
