"""python -m fedmbo_ray.catalog: the same as `fedmbo catalog`."""

from fedmbo_ray.core.entry import enter

if __name__ == "__main__":
    enter("catalog")
