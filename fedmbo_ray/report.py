"""python -m fedmbo_ray.report: the same as `fedmbo report`."""

from fedmbo_ray.core.entry import enter

if __name__ == "__main__":
    enter("report")
