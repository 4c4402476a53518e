"""``python -m fastgc.store``: keeps what ranks need to find each other, on a machine that lasts.

Ranks on machines that may be taken away (spot machines) find each other, and what they agree on, in
a coordinator that must outlive them::

    python -m fastgc.store --port 29400                       # on a machine that lasts
    FASTGC_STORE=HOST:29400 python -m fastgc.guard script.py   # for each rank

It holds no state of the training. If it is started again at the same port, the ranks connect anew.
"""

import argparse
import signal
import sys

from .torch.coordinator import Server

__all__ = ["main"]


def main() -> None:
    """Keep the coordinator in a program of its own, until a signal ends it."""
    parser = argparse.ArgumentParser(
        prog="python -m fastgc.store",
        description="Keeps what ranks of ReactiveDataParallel need to find each other.",
        epilog="Ranks find it by the environment: FASTGC_STORE=HOST:PORT",
    )
    parser.add_argument("--host", default="", help="address to listen at (all)")
    parser.add_argument("--port", type=int, default=29400, help="port to listen at (%(default)s)")
    given = parser.parse_args()
    try:
        server = Server(given.host, given.port)
    except OSError as error:
        parser.error(f"cannot listen at {given.host}:{given.port}: {error}")
    print(f"fastgc.store: listening at port {server.port}", flush=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    server.run()


if __name__ == "__main__":
    main()
