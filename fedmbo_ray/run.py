"""python -m fedmbo_ray.run: the same as `fedmbo run`."""

import sys

from fedmbo_ray.cli.run import main

if __name__ == "__main__":
    sys.exit(main())
