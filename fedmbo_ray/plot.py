"""python -m fedmbo_ray.plot: the same as `fedmbo plot`."""

import sys

from fedmbo_ray.cli.plot import main

if __name__ == "__main__":
    sys.exit(main())
