"""Write an encoder for other runtimes, or push it to the hub."""
