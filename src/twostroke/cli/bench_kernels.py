"""`twostroke bench --kernels`: the kernels alone, by weight type and ISA."""

import dataclasses
import json
import sys

from twostroke.cli.entry import leaving_on_interrupt
from twostroke.config import MAX_THREADS, Config
from twostroke.errors import ConfigError


def bench_kernels(*, config: Config, threads: int | None, as_json: bool) -> None:
    """Every ISA of the machine, or the one that TWOSTROKE_ISA names; lines appear as they are measured."""
    with leaving_on_interrupt():
        from twostroke import _native
        from twostroke.core.clock import WallClock
        from twostroke.engine.cores import usable_cores
        from twostroke.measure.kernels import measure_kernels
        from twostroke.view.kernel_table import heading, line_of

    count = config.threads or usable_cores() if threads is None else threads
    if not 1 <= count <= MAX_THREADS:
        raise ConfigError(f"--threads is {count}: it must be from 1 to {MAX_THREADS}")
    usable = _native.usable_isas()
    if config.isa is not None and config.isa not in usable:
        raise ConfigError(f"ISA {config.isa!r} cannot run on this machine; it has {', '.join(usable)}")
    isas = usable if config.isa is None else [config.isa]
    speeds = measure_kernels(isas, threads=count, clock=WallClock())
    if as_json:
        kernels = [{"isa": isa, **dataclasses.asdict(speed)} for isa, speed in speeds]
        sys.stdout.write(json.dumps({"threads": count, "kernels": kernels}, allow_nan=False) + "\n")
        return
    sys.stdout.write("\n".join(heading(count)) + "\n")
    for isa, speed in speeds:
        sys.stdout.write(line_of(isa, speed) + "\n")
        sys.stdout.flush()
