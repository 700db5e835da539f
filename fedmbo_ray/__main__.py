"""python -m fedmbo_ray: the same as `fedmbo`."""

import sys

from fedmbo_ray.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
