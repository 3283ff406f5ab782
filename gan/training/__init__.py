"""Training: losses, augmentation, averages, the parts of a step, processes, memory, budgets; a run, its start and end.

The algorithm itself stands in train.py; what only shows it belongs in gan/watching.
"""
