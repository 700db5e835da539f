"""python -m fedmbo_ray.tune: the same as `fedmbo tune`."""

import sys

from fedmbo_ray.cli.tune import main

if __name__ == "__main__":
    sys.exit(main())
