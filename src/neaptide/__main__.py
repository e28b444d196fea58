"""`python -m neaptide`."""

import sys

from neaptide.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
