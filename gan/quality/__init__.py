"""Quality of generated faces: samples, features, metrics, instance selection, reports.

Nothing here may change a weight.
"""
