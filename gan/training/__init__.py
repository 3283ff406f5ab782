"""Training: losses, augmentation, averages, the parts of a step, processes, memory, budgets, runs.

The algorithm itself is in train.py; what only shows a run belongs in gan/watching.
"""
