"""A round of the MPI engine beside the bare loops of MPI programs that move the same bytes.

Run as ``mpiexec -n 17 python benches/mpi_loop.py`` for 16 workers; arguments are gradient
dimensions. It prints JSON: a row for each dimension, with the median seconds of a round of each
loop. The loops take turns, in blocks of rounds.

A bare loop hands the parameters to all workers that have answered, and takes the first f messages
of the round. A worker that answers an older round gets the newest parameters. ``waiting`` lets MPI
wait, as programs do that have a processor for each rank. ``yielding`` tests, and yields between
tests, as programs must if ranks outnumber processors.
"""

import json
import os
import sys
import time

import numpy as np
from measure import zero
from mpi4py import MPI

from fastgc import Uncoded
from fastgc.engines.mpi import MPICluster

STRAGGLERS = 3
BLOCKS = 5
ROUNDS = {10: 40, 10**4: 20, 10**6: 3}  # rounds in a block, by dimension
END = -1.0


def waitsome(requests, waiting):
    if waiting:
        return MPI.Request.Waitsome(requests)
    while not (done := MPI.Request.Testsome(requests)):
        os.sched_yield()
    return done


def wait(request, waiting):
    waitsome([request], waiting)


def bare_master(comm, p, rounds, waiting):
    """Return the seconds of each round; the first number of a message is its round."""
    n = comm.size - 1
    buffers = [np.zeros(p) for _ in range(2)]
    messages = [np.empty(p) for _ in range(n)]
    receives = [MPI.REQUEST_NULL] * n
    sends = [MPI.REQUEST_NULL] * n

    def hand(worker, theta):
        sends[worker].Wait()
        receives[worker] = comm.Irecv(messages[worker], worker + 1)
        sends[worker] = comm.Isend(theta, worker + 1)

    seconds = []
    for number in range(rounds):
        start = time.perf_counter()
        theta = buffers[number % 2] if p > 100 else np.empty(p)
        theta[:] = number
        for worker in range(n):
            if receives[worker] == MPI.REQUEST_NULL:
                hand(worker, theta)
        fresh = 0
        while fresh < n - STRAGGLERS:
            for worker in waitsome(receives, waiting):
                if messages[worker][0] == number:
                    fresh += 1
                else:
                    hand(worker, theta)
        seconds.append(time.perf_counter() - start)
    while any(request != MPI.REQUEST_NULL for request in receives):
        waitsome(receives, waiting)
    MPI.Request.Waitall(sends)
    for worker in range(n):
        comm.Send(np.full(p, END), worker + 1)
    return seconds


def bare_worker(comm, p, waiting):
    theta, message = np.empty(p), np.empty(p)
    while True:
        wait(comm.Irecv(theta, 0), waiting)
        if theta[0] == END:
            return
        message.fill(0.0)
        message[0] = theta[0]
        wait(comm.Isend(message, 0), waiting)


def engine_master(comm, p, rounds):
    """Return the seconds of each round."""
    code = Uncoded(comm.size - 1, tolerance=STRAGGLERS / (comm.size - 1))
    theta, out = np.zeros(p), np.empty(p)
    seconds = []
    with MPICluster(code, [0.0] * code.k, zero, p, comm=comm) as cluster:
        for _ in range(rounds):
            start = time.perf_counter()
            cluster.step(theta, out)
            seconds.append(time.perf_counter() - start)
    return seconds


def compare(comm, p):
    """Return the median of each loop on rank 0, None on others."""
    seconds = {"bare, waiting": [], "bare, yielding": [], "engine": []}
    rounds = ROUNDS.get(p, 10)
    for _ in range(BLOCKS):
        for loop, taken in seconds.items():
            if loop == "engine":
                taken += [] if MPICluster.serve(comm) else engine_master(comm, p, rounds)
            elif comm.rank:
                bare_worker(comm, p, loop == "bare, waiting")
            else:
                taken += bare_master(comm, p, rounds, loop == "bare, waiting")
    if comm.rank:
        return None
    return {"p": p, **{loop: float(np.median(taken)) for loop, taken in seconds.items()}}


if __name__ == "__main__":
    rows = [compare(MPI.COMM_WORLD, int(size)) for size in sys.argv[1:] or ROUNDS]
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(rows))
