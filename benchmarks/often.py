"""Run train.py with other intervals between rows of log.jsonl and saves of latest.pt, for measurements and tests.

python benchmarks/often.py STEPS SECONDS [OPTION ...]       STEPS between rows, SECONDS between saves
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import train
    from config import TrainConfig
    from gan.command_line import command_line

    train.LOG_EVERY, train.SAVE_SECONDS = int(sys.argv[1]), float(sys.argv[2])
    sys.argv[:3] = ["train.py"]
    command_line(TrainConfig, train.main)
