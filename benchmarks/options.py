"""Write docs/options.md, the list of all options, from config.py.

python -m benchmarks.options

A test checks that the page is up to date.
"""

from __future__ import annotations

from pathlib import Path

from gan.command_line import options_page

PAGE = Path(__file__).resolve().parents[1] / "docs" / "options.md"

if __name__ == "__main__":
    PAGE.write_text(options_page(), encoding="utf-8", newline="\n")
