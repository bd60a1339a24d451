"""`python -m twostroke` is the command line; with `python -X dev -m` the traceback of a bug is shown."""

import sys

from twostroke.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
