"""What tests give to workers, which cannot import test modules."""


class Remote:
    """A callable that workers evaluate from its source, since they cannot import a test module.

    What a gradient of theta, shard and out returns is dropped.
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
