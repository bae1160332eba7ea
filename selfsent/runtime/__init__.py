"""The machine and its processes: device and precision, several processes at once, random draws, slow imports."""
