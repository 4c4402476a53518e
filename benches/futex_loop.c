/* The least that a round on local processes costs: `futex_loop WORKERS NEEDED PARAMETERS ROUNDS` prints the
 * seconds of each of so many rounds, one a line. One futex wakes all workers, each writes a gradient of
 * zeros to its message, and the first messages that suffice are added up. No code, no check, no fault. */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, BLOCK = 2048 };

static const unsigned END = UINT_MAX; /* the round after the last */

/* What lies in the memory that all share, before the parameters and the messages. */
struct shared {
    _Alignas(LINE) atomic_uint round; /* the newest: workers sleep on it */
    _Alignas(LINE) atomic_uint last;  /* the last that is complete: the master sleeps on it */
    _Alignas(LINE) atomic_ulong arrived; /* round << 32 | messages of it */
    _Alignas(LINE) unsigned sender[]; /* by arrival */
};

static void sleep_on(atomic_uint *word, unsigned seen)
{
    while (atomic_load(word) == seen)
        syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void wake(atomic_uint *word, int sleepers)
{
    syscall(SYS_futex, word, FUTEX_WAKE, sleepers, NULL, NULL, 0);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void work(struct shared *s, unsigned worker, unsigned needed, double *message, long p)
{
    for (unsigned round = 0;;) {
        sleep_on(&s->round, round);
        if ((round = atomic_load(&s->round)) == END)
            _exit(0);
        memset(message, 0, (size_t)p * sizeof *message);
        unsigned long seen = atomic_load(&s->arrived);
        while (seen >> 32 == round && !atomic_compare_exchange_weak(&s->arrived, &seen, seen + 1))
            ;
        if (seen >> 32 != round || (unsigned)seen >= needed)
            continue;
        s->sender[(unsigned)seen] = worker;
        if ((unsigned)seen + 1 == needed) {
            atomic_store(&s->last, round);
            wake(&s->last, 1);
        }
    }
}

int main(int count, char **arguments)
{
    if (count != 5)
        return 2;
    const unsigned n = (unsigned)atoi(arguments[1]), needed = (unsigned)atoi(arguments[2]);
    const long p = atol(arguments[3]), rounds = atol(arguments[4]);
    const size_t row = ((size_t)p * sizeof(double) + LINE - 1) / LINE * LINE;
    const size_t head = (sizeof(struct shared) + n * sizeof(unsigned) + LINE - 1) / LINE * LINE;
    char *const memory = mmap(NULL, head + (n + 1) * row, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double *const own = calloc((size_t)p, sizeof *own), *const out = malloc((size_t)p * sizeof *out);
    double *const times = malloc((size_t)rounds * sizeof *times);
    if (memory == MAP_FAILED || !own || !out || !times)
        return 1;
    struct shared *const s = (struct shared *)memory;
    double *const theta = (double *)(memory + head);
    for (unsigned worker = 0; worker < n; worker++)
        if (!fork()) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(s, worker, needed, (double *)(memory + head + (worker + 1) * row), p);
        }
    for (unsigned round = 1; round <= rounds; round++) {
        const double start = now();
        memcpy(theta, own, (size_t)p * sizeof *theta);
        atomic_store(&s->arrived, (unsigned long)round << 32);
        atomic_store(&s->round, round);
        wake(&s->round, (int)n);
        sleep_on(&s->last, round - 1);
        for (long at = 0; at < p; at += BLOCK) {
            const long end = at + BLOCK < p ? at + BLOCK : p;
            memset(out + at, 0, (size_t)(end - at) * sizeof *out);
            for (unsigned r = 0; r < needed; r++) {
                const double *const message = (double *)(memory + head + (s->sender[r] + 1) * row);
                for (long i = at; i < end; i++)
                    out[i] += message[i];
            }
        }
        times[round - 1] = now() - start;
    }
    for (long round = 0; round < rounds; round++)
        printf("%.9f\n", times[round]);
    atomic_store(&s->round, END);
    wake(&s->round, (int)n);
    while (wait(NULL) > 0)
        ;
    return 0;
}
