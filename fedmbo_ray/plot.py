"""python -m fedmbo_ray.plot: the same as `fedmbo plot`."""

from fedmbo_ray.core.entry import enter

if __name__ == "__main__":
    enter("plot")
