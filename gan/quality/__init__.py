"""The quality of generated faces: samples, features, metrics, instance selection and reports.

Nothing in this package may change a weight.
"""
