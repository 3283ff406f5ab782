"""Pictures on their way to a batch: found, read, cleaned, packed, drawn by the program, dealt out to the steps.

No networks and nothing that is learnt belongs here.
"""
