"""What a run shows: the outputs that display it while it trains, and the summary when it stops."""

from __future__ import annotations

import contextlib
import dataclasses

from config import TrainConfig
from gan import checkpoint
from gan.command_line import log
from gan.files import as_word
from gan.images import PREVIEWS, load_picture
from gan.training.run import Run, TrainingState
from gan.watching import health, run_report, tensorboard_log, visdom_page
from gan.watching.monitor import Monitor
from gan.watching.output import Output


def opened_outputs(run: Run) -> list[Output]:
    """Open the outputs that display the run: its report, and those that were asked for. Print where they are."""
    config, outputs = run.config, list[Output]()
    if not run.ranks.first:
        return outputs
    options = {**dataclasses.asdict(config), **run.describe()["chosen"]}
    del options["vocabulary"]  # it may be long
    outputs.append(run_report.RunReport(run.folder, options, run.samples))
    if config.vis:
        name, env = run.folder.name, config.env or run.folder.name
        page, where = visdom_page.open_page(config.vis_server, env, name, options)
        log(where)
        if page is not None:
            outputs.append(page)
    if last := max(run.samples.glob(PREVIEWS), default=None):
        with contextlib.suppress(OSError, ValueError):  # a file cut short by a power failure, or not a preview
            step, grid = int(last.stem.removeprefix("step-")), load_picture(last)
            for output in outputs:
                output.picture("samples", f"Samples of step {step:,}, before the run was resumed", grid, step)
    if config.tensorboard:  # which has the earlier samples
        outputs.append(tensorboard_log.TensorBoardLog(run.folder / "tensorboard", options))
        log(f"TensorBoard: tensorboard --logdir {run.folder.parent}")
    return outputs


def summary(run: Run, state: TrainingState, monitor: Monitor) -> list[str]:
    """Return the lines printed at the end of a session: progress, quality, and what to do next."""
    config, folder = run.config, run.folder
    lines = [
        f"{'finished' if state.finished else 'stopped'} at step {state.step}, "
        f"{state.step * config.batch_size:,} images seen, {monitor.seconds / 60:.1f} minutes of training"
    ]
    if monitor.diagnosis is not None:
        lines.append(f"verdict: {monitor.diagnosis.short}: {monitor.diagnosis.text}")
    if best := checkpoint.best_so_far(folder):
        found = health.in_words(best, config.best_by)
        lines.append(f"best:    {found} at {best['images_seen']:,} images, in {folder / 'best.pt'}")
    else:
        why = "best.pt could not be kept" if monitor.curves.column("fd")[0].size else "quality was not measured"
        lines.append(f"best:    {why}, so the last state counts, {run.latest}")
    lines.append(f"samples: {run.samples}")
    for name, file in (("report:", "report.html"), ("film:", "timelapse.webp")):
        if (folder / file).is_file():
            lines.append(f"{name:8} {folder / file}")
    return lines + commands(run, state)


def commands(run: Run, state: TrainingState) -> list[str]:
    """Return what the user may run after a session, each command with its purpose."""
    word, more = as_word(run.folder), f" {extension(run.config)}" if state.finished else ""
    return [
        f"faces:   python generate.py --checkpoint={word}",
        f"measure: python evaluate.py --fake={word}",
        f"go on:   python train.py --resume={word}{more}",
    ]


def extension(config: TrainConfig) -> str:
    """Return the option that extends a finished run: by as many minutes again, or by some epochs."""
    return f"--max_epoch={config.epochs + 50}" if config.budget is None else f"--budget={config.budget:g}"
