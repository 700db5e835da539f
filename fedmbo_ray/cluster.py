"""python -m fedmbo_ray.cluster: the same as `fedmbo cluster`."""

from fedmbo_ray.core.entry import enter

if __name__ == "__main__":
    enter("cluster")
