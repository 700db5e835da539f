"""python -m fedmbo_ray.catalog: the same as `fedmbo catalog`."""

import sys

from fedmbo_ray.cli.catalog import main

if __name__ == "__main__":
    sys.exit(main())
