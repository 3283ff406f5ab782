"""Data: finding, reading, cleaning, packing and batching pictures, and the synthetic faces.

No networks, and nothing that is learned, belong here.
"""
