"""python -m fedmbo_ray.cluster: the same as `fedmbo cluster`."""

import sys

from fedmbo_ray.cli.cluster import main

if __name__ == "__main__":
    sys.exit(main())
