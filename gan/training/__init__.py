"""What moves weights, and what a run is: losses, augmentation, averages, steps, processes, budgets, its start and end.

The algorithm itself stands in train.py; what only shows it belongs in gan/watching.
"""
