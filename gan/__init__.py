"""The parts that more than one entry point needs. This folder holds what its subfolders share."""
