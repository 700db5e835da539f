"""python -m fedmbo_ray.report: the same as `fedmbo report`."""

import sys

from fedmbo_ray.cli.report import main

if __name__ == "__main__":
    sys.exit(main())
