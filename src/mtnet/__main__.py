"""`python -m mtnet` is `mtnet`."""

import sys

from mtnet.cli import main

if __name__ == "__main__":  # worker processes import this file under another name
    sys.exit(main())
