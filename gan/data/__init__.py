"""Data: finding, reading, cleaning, packing and batching pictures, and the synthetic faces.

Networks and anything else that is learned do not belong here.
"""
