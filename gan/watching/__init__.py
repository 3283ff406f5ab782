"""Showing a run: curves, verdicts, the status line, the report, visdom, TensorBoard.

Nothing here may change the training.
"""
