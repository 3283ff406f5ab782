"""The parts that more than one entry point needs; what the parts in its folders share stands here."""
