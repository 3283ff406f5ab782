"""What a run shows: the outputs that display it while it trains, and the summary when it stops."""

import contextlib
import dataclasses
import os
from pathlib import Path

from gan import checkpoint
from gan.command_line import log
from gan.files import as_word
from gan.images import PREVIEWS, load_picture
from gan.language import text
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
    again = resumption(run, run.folder, finished=False)
    outputs.append(run_report.RunReport(run.folder, options, run.samples, again))
    if config.vis:
        name, env = run.folder.name, config.env or run.folder.name
        page, where = visdom_page.open_page(config.vis_server, env, name, options)
        log(where)
        if page is not None:
            outputs.append(page)
    if last := max(run.samples.glob(PREVIEWS), default=None):
        with contextlib.suppress(OSError, ValueError):  # a file cut short by a power failure, or not a preview
            step, grid = int(last.stem.removeprefix("step-")), load_picture(last)
            title = text("Samples of step {:,}, before the run was resumed").format(step)
            for output in outputs:
                output.picture("samples", title, grid, step)
    if config.tensorboard:  # which has the earlier samples
        outputs.append(tensorboard_log.TensorBoardLog(run.folder / "tensorboard", options))
        log(text("TensorBoard: tensorboard --logdir {}").format(run.folder.parent))
    return outputs


def summary(run: Run, state: TrainingState, monitor: Monitor) -> list[str]:
    """Return the lines printed at the end of a session: progress, quality, and what to do next."""
    config, folder = run.config, run.folder
    ended = text("finished at step {}, {:,} images seen, {:.1f} minutes of training")
    ended = ended if state.finished else text("stopped at step {}, {:,} images seen, {:.1f} minutes of training")
    lines = [ended.format(state.step, state.step * config.batch_size, monitor.seconds / 60)]
    if monitor.diagnosis is not None:
        lines.append(text("verdict: {}: {}").format(monitor.diagnosis.short, monitor.diagnosis.text))
    if best := checkpoint.best_so_far(folder):
        found = health.in_words(best, config.best_by)
        line = text("best:    {} at {:,} images, in {}")
        lines.append(line.format(found, best["images_seen"], folder / "best.pt"))
    else:
        measured = monitor.curves.column("fd")[0].size
        why = text("best.pt could not be kept") if measured else text("quality was not measured")
        lines.append(text("best:    {}, so the last state counts, {}").format(why, run.latest))
    lines.append(text("samples: {}").format(run.samples))
    for line, file in ((text("report:  {}"), "report.html"), (text("film:    {}"), "timelapse.webp")):
        if (folder / file).is_file():
            lines.append(line.format(folder / file))
    return lines + commands(run, state)


def commands(run: Run, state: TrainingState) -> list[str]:
    """Return what the user may run after a session, each command with its purpose."""
    word = as_word(run.folder)
    return [
        text("faces:   {}").format(f"python generate.py --checkpoint={word}"),
        text("measure: {}").format(f"python evaluate.py --fake={word}"),
        text("go on:   {}").format(resumption(run, run.folder, state.finished)),
    ]


def resumption(run: Run, folder: Path, finished: bool) -> str:
    """Return the command that goes on from a folder, in as many processes as now; it makes a finished run longer."""
    world, config, more = run.ranks.world, run.config, ""
    if finished:  # by some epochs, or by as many minutes again
        more = f" --max_epoch={config.epochs + 50}" if config.budget is None else f" --budget={config.budget:g}"
    several = "..." if os.environ.get("LOCAL_WORLD_SIZE", str(world)) != str(world) else f"--nproc_per_node={world}"
    start = "python" if world == 1 else f"torchrun {several} --"  # the dots: what else was typed, on several machines
    return f"{start} train.py --resume={as_word(folder)}{more}"
