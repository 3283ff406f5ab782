"""Run the studio, a web page to train a generator, play with it and give it away: python app.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which python -I and PYTHONSAFEPATH=1 leave out
from config import NOGPU, RELEASED, ConfigError, check_numbers, needing, option

# isort: split

import contextlib
import dataclasses
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from gan import visitors
from gan.command_line import command_line, log
from gan.device import choose_device
from gan.language import text
from gan.studio.faces import Studio
from gan.studio.programs import ENVIRONMENT

LARGEST = 2**30  # maximum size of an uploaded file in bytes; larger ones are named by their path


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudioConfig:
    """Train a generator, play with it and give it away, in the browser."""

    examples: ClassVar[tuple[str, ...]] = ("--checkpoint=checkpoints/my_run", "--port=8000")

    checkpoint: Path = option(
        RELEASED,
        "the generator to begin with: a file or a run's folder; by default released, the one that comes with the "
        "program. The page offers your runs, too.",
    )
    port: int = option(7860, "port of the page, on this machine only.", ge=1, le=65535)
    gpu: bool | None = option(None, f"generate on the GPU; {NOGPU}")

    def __post_init__(self) -> None:
        check_numbers(self)


def main(config: StudioConfig, typed: Mapping[str, Any]) -> None:
    """Run `python app.py`: serve the page until Ctrl-C."""
    for name in ENVIRONMENT:  # one of gradio's makes folders public; nothing is fetched through a proxy
        if name.startswith("GRADIO_") or name.lower().endswith("_proxy"):
            os.environ.pop(name, None)
    os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1", "no_proxy": "*", "NO_PROXY": "*"}
    with tempfile.TemporaryDirectory(prefix="studio-", ignore_cleanup_errors=True) as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder
        with needing(text("the studio")):
            from gan.studio import page  # only now: gradio reads these variables on import
        studio = Studio(config.checkpoint, choose_device(config.gpu))
        blocks = page.build(studio, Path(folder))
        blocks.queue(max_size=32)
        try:
            blocks.launch(
                server_name="127.0.0.1",
                server_port=config.port,
                share=False,
                quiet=True,
                prevent_thread_lock=True,
                max_file_size=LARGEST,
                footer_links=[],
                run_history=False,
                ssr_mode=False,
                enable_monitoring=False,
                state_session_capacity=16,
                **page.looks(studio),
            )
        except OSError as error:
            raise ConfigError(
                "--port: {} cannot be used, perhaps it is taken; give another one", config.port
            ) from error
        hangup = getattr(signal, "SIGHUP", signal.SIGTERM)  # a closed terminal; Windows has no SIGHUP
        for number in (signal.SIGINT, signal.SIGTERM, hangup):  # SIGINT is ignored in background jobs of a script
            if number != hangup or signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP on purpose
                signal.signal(number, signal.default_int_handler)
        there = text("the studio is at {}; Ctrl-C ends it").format(f"http://127.0.0.1:{config.port}")
        log(there + visitors.tunnel(config.port))
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
        shutil.rmtree(folder, ignore_errors=True)  # and again below, since another thread may be writing there
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # PyTorch may be at work in another thread, and would crash in an ordinary exit


if __name__ == "__main__":
    command_line(StudioConfig, main)
