"""The parts that more than one entry point needs, one subject a file."""
