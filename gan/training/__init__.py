"""Training: losses, augmentation, weight averages, the parts of a step, processes, memory, budgets and runs.

The algorithm itself is in train.py. Code that only displays a run belongs in gan/watching.
"""
