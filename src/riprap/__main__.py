"""``python -m riprap``: the same as the ``riprap`` command."""

import sys

from riprap.cli import main

if __name__ == "__main__":
    sys.exit(main())
