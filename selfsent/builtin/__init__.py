"""What is there without a download: a small encoder and a corpus to try everything on."""
