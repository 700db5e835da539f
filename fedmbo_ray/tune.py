"""python -m fedmbo_ray.tune: the same as `fedmbo tune`."""

from fedmbo_ray.core.entry import enter

if __name__ == "__main__":
    enter("tune")
