"""Threads that are at work beside a test."""

import threading
from contextlib import contextmanager


@contextmanager
def beside(work, count=1):
    """So many threads call ``work(over)``, which is to return once the event `over` is set."""
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
