"""python -m hpcgcn"""

import sys

from hpcgcn.cli import main

if __name__ == "__main__":
    sys.exit(main())
