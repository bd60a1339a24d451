"""What stands on the command line itself: a flag that another one leaves without use is refused, not dropped.

Called by the benches, where one flag chooses what is measured.
"""

from collections.abc import Sequence

import typer

from twostroke.errors import ConfigError


def given_flags(context: typer.Context) -> dict[str, str]:
    """Parameters that were given, and their flags."""
    flags = {parameter.name: parameter.opts[0] for parameter in context.command.params if parameter.name}
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name: flags[name] for name, source in sources.items() if source is not None and source.name != "DEFAULT"}


def refuse_beside(mode: str, context: typer.Context, *, used: Sequence[str]) -> None:
    """Raises ConfigError for a flag that `mode`, a parameter, has no use for; it uses those of `used`."""
    given = given_flags(context)
    idle = [flag for name, flag in given.items() if name not in (mode, *used)]
    if idle:
        raise ConfigError(f"{idle[0]} is given beside {given[mode]}, which has no use for it: leave one of them out")
