"""How many processors this process may use. Does not import torch, as starting a process that decodes must be fast."""

import math
import os
from pathlib import Path


def quota() -> float:
    """Return the number of processors to which Linux limits this process, as in a container; infinite if to none."""
    least, groups = math.inf, Path("/sys/fs/cgroup")
    try:
        group = groups / Path("/proc/self/cgroup").read_text().partition("0::/")[2].strip()
        for folder in (group, *group.parents):
            if (file := folder / "cpu.max").is_file():
                most, period = file.read_text().split()
                least = min(least, float(most) / float(period)) if most != "max" else least
        if (old := groups / "cpu" / "cpu.cfs_quota_us").is_file() and (most := int(old.read_text())) > 0:
            least = min(least, most / int(old.with_name("cpu.cfs_period_us").read_text()))
    except (OSError, ValueError):  # not Linux, or another form of these files
        pass
    return least


def number() -> int:
    """Return the number of processors that this process may use at a time."""
    affinity = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))  # Linux alone has it
    return max(1, round(min(len(affinity(0)), os.cpu_count() or 1, quota())))
