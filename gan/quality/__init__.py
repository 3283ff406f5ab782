"""How good generated faces are: samples, features, metrics, which faces look whole, reports.

Nothing here may move a weight.
"""
