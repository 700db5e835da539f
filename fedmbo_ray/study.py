"""python -m fedmbo_ray.study: the same as `fedmbo study`."""

import sys

from fedmbo_ray.cli.study import main

if __name__ == "__main__":
    sys.exit(main())
