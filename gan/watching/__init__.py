"""Displays of a training run: curves, verdicts, the status line, the report, visdom and TensorBoard.

Nothing in this package may change the training.
"""
