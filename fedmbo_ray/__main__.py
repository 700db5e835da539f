"""python -m fedmbo_ray: the same as `fedmbo`."""

from fedmbo_ray.core.entry import enter

if __name__ == "__main__":
    enter()
