"""What shows a run to a person: curves, verdicts, the status line, the report, visdom, TensorBoard.

Nothing here may change the training.
"""
