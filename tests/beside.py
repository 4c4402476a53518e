"""Threads that work while a test runs."""

import threading
from contextlib import contextmanager


@contextmanager
def beside(work, count=1):
    """Let `count` threads call ``work(over)``, which must return once the event `over` is set."""
    over = threading.Event()
    threads = [threading.Thread(target=work, args=(over,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
