"""Gradient functions for workers, which cannot import test modules."""

_DIES_ONCE = """lambda theta, shard, out, *, partition, round: (
    __import__("os").path.exists(order := f"{folder}/{round}-{partition}")
    and (__import__("os").unlink(order), __import__("os").kill(__import__("os").getpid(), 9)),
    __import__("numpy").multiply(theta, shard, out),
) and None"""


class Remote:
    """A callable that workers evaluate from its source.

    If it is a lambda of theta, shard and out, it returns None, whatever the lambda returns.
    """

    def __init__(self, source):
        self.source = source

    def __reduce__(self):
        arguments = "theta, shard, out"
        if self.source.startswith(f"lambda {arguments}"):
            return eval, (f"lambda {arguments}: [({self.source})({arguments})] and None",)
        return eval, (self.source,)

    def __call__(self, theta, shard, out):
        raise AssertionError("not for the master")


class DiesOnce:
    """A gradient, theta times shard, that deletes a file and kills its process if the file exists.

    Parameters
    ----------
    folder : str
        Folder of the files; ``{round}-{partition}`` names the round and the partition to die in.
    """

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return eval, (f"(lambda folder: {_DIES_ONCE})({self.folder!r})",)

    def __call__(self, theta, shard, out, *, partition, round):
        raise AssertionError("not for the master")
