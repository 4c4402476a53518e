/* Messages of a round as they come; and orders and news between a master and its worker processes, in shared
 * memory.
 *
 * Nothing is locked, and every line of memory has one writer: a process may be stopped or killed between
 * any two instructions, and all others go on. One word is different: `wanted`, the number of news that
 * the master sleeps for. If a change of it is lost, the master looks by itself after some time. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"

#ifdef _WIN32
#include <io.h>
#else
#include <unistd.h>
#endif

#ifdef __linux__
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#endif

static double norm_squared(const fgc_arrivals *a, const void *row)
{
    switch (a->kind) {
    case FGC_FLOAT:
        return fgc_square_sum_float(row, a->length);
    case FGC_HALF:
        return fgc_square_sum_half(row, a->length);
    case FGC_BFLOAT:
        return fgc_square_sum_bfloat(row, a->length);
    default:
        return fgc_square_sum_double(row, a->length);
    }
}

/* Return whether all elements of a row of doubles are finite; 0 for other kinds of rows. */
static int finite_doubles(const fgc_arrivals *a, const void *row)
{
    const double *const x = row;
    if (a->kind != FGC_DOUBLE)
        return 0;
    for (int64_t i = 0; i < a->length; i++)
        if (!isfinite(x[i]))
            return 0;
    return 1;
}

fgc_status fgc_arrive(const fgc_arrivals *a, int64_t number, const void *row, double energy)
{
    if (number < 0 || number >= a->messages)
        return FGC_OUT_OF_RANGE;
    if (a->heard[number])
        return FGC_DUPLICATE;
    const double square = a->check ? norm_squared(a, row) : NAN;
    if (a->check && !(square < INFINITY) && !finite_doubles(a, row)) /* squares may overflow */
        return FGC_NOT_FINITE;
    const int64_t count = a->state[0]++;
    a->numbers[count] = number;
    a->squares[count] = square;
    a->energies[count] = energy >= 0 ? energy : NAN;
    a->addresses[count] = (uintptr_t)row;
    a->heard[number] = 1;
    const int64_t block = a->block[number];
    if (--a->lacking[block] == 0)
        a->state[1] -= a->weight[block];
    return a->state[1] > 0 ? FGC_TOO_FEW : FGC_OK;
}

/* Sizes in int64: see fgc_rings. */
enum { LINE = 8, NEWS = 4, ORDER = 4, ORDERS = 2 * LINE };

/* Orders to more workers than this wake all workers; those without an order go back to sleep. */
enum { FEW = 8 };

typedef _Atomic int64_t shared;

static int64_t read_shared(const int64_t *word) { return atomic_load((shared *)word); }

static void write_shared(int64_t *word, int64_t value) { atomic_store((shared *)word, value); }

/* The word that workers sleep on. Processes share it, so its futex is not a private one. */
static atomic_uint *word_of(const fgc_rings *r) { return (atomic_uint *)(r->newest + 1); }

static int64_t *news_of(const fgc_rings *r, int64_t worker) { return (int64_t *)r->news[worker]; }

/* The bit by which a worker is woken: all workers sleep on one word. */
static unsigned bit_of(int64_t worker) { return 1u << worker % 32; }

#ifdef __linux__
/* Sleep until `word` is not `seen`, or until the time `until` of fgc_now() (-1: no limit). May return early.
 * Returns whether a signal came. */
static int sleep_on(atomic_uint *word, unsigned seen, int64_t until, unsigned bit)
{
    const struct timespec t = {until / 1000000000, until % 1000000000};
    return syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, until < 0 ? NULL : &t, NULL, bit) < 0 &&
           errno == EINTR;
}

static void wake(const fgc_rings *r, unsigned bits)
{
    atomic_fetch_add(word_of(r), 1);
    syscall(SYS_futex, word_of(r), FUTEX_WAKE_BITSET, INT32_MAX, NULL, NULL, bits);
}

/* Wait until one of the files can be read, for so many milliseconds at most. Empties the bell, and returns
 * whether it rang. *others: whether another file can be read. */
static int hear(int files, int bell, int milliseconds, int *others)
{
    struct epoll_event heard[2];
    const int count = epoll_wait(files, heard, 2, milliseconds);
    int rang = 0;
    for (int i = 0; i < count; i++)
        if (heard[i].data.fd == bell) {
            char bytes[1 << 8];
            rang = 1;
            /* A bounded number of times: a worker may ring all the time. */
            for (int more = 1 << 8; more-- && read(bell, bytes, sizeof bytes) == sizeof bytes;)
                ;
        }
    *others = count > rang;
    return rang;
}
#else
/* Used on Linux only: see fastgc/engines/rings.py. */
static int sleep_on(atomic_uint *word, unsigned seen, int64_t until, unsigned bit)
{
    (void)word, (void)seen, (void)until, (void)bit;
    return 1;
}

static void wake(const fgc_rings *r, unsigned bits)
{
    (void)bits;
    atomic_fetch_add(word_of(r), 1);
}

static int hear(int files, int bell, int milliseconds, int *others)
{
    (void)files, (void)bell, (void)milliseconds;
    return *others = 0;
}
#endif

void fgc_rings_hand(const fgc_rings *r, const int64_t *workers, const int64_t *first,
                    const double *delay, int64_t round, int64_t buffer, int64_t count)
{
    unsigned bits = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t *const orders = r->orders + ORDERS * workers[i];
        const int64_t given = orders[0] + 1;
        int64_t *const order = orders + LINE + ORDER * (given % 2);
        order[0] = round;
        order[1] = buffer;
        order[2] = first[i];
        memcpy(order + 3, delay + i, sizeof *delay);
        write_shared(orders, given);
        bits |= bit_of(workers[i]);
    }
    wake(r, count > FEW ? ~0u : bits);
}

void fgc_rings_admit(const fgc_rings *r, int64_t worker, int64_t birth)
{
    write_shared(r->orders + ORDERS * worker + 1, birth);
    wake(r, bit_of(worker));
}

int64_t fgc_rings_wait(const fgc_rings *r, int64_t worker, int64_t birth, int64_t seen,
                       double seconds)
{
    const int64_t *const orders = r->orders + ORDERS * worker;
    int64_t until = seconds < 1e9 ? 0 : -1; /* 0: not computed yet; the clock takes longer than the rest */
    for (;;) {
        const unsigned word = atomic_load(word_of(r));
        if (read_shared(orders + 1) != birth)
            return -1;
        const int64_t given = read_shared(orders);
        if (given != seen || seconds <= 0)
            return given;
        if (!until)
            until = fgc_now() + (int64_t)(1e9 * seconds);
        else if (until > 0 && fgc_now() >= until)
            return seen;
        if (sleep_on(word_of(r), word, until, bit_of(worker)))
            return seen;
    }
}

void fgc_rings_tell(const fgc_rings *r, int bell, int64_t worker, int64_t round, int64_t index,
                    double energy)
{
    int64_t *const ring = news_of(r, worker);
    const int64_t told = ring[0];
    int64_t *const news = ring + LINE + NEWS * (told % r->capacity);
    news[0] = fgc_now();
    news[1] = round;
    news[2] = index;
    memcpy(news + 3, &energy, sizeof energy);
    write_shared(ring, told + 1);
    /* The news are written before `wanted` is changed; the master changes `wanted` before it reads news. So
     * one of the two sees the other's change. News of an older round wake the master at once: it hands this
     * worker the newest round. */
    shared *const wanted = (shared *)r->wanted;
    const int wake_master = round < read_shared(r->newest) ? atomic_exchange(wanted, 0) > 0
                                                           : atomic_fetch_sub(wanted, 1) == 1;
    if (wake_master)
        while (write(bell, "", 1) < 0 && errno == EINTR)
            ;
}

static int earlier(const void *a, const void *b)
{
    const int64_t x = ((const fgc_news *)a)->time, y = ((const fgc_news *)b)->time;
    return (x > y) - (x < y);
}

int64_t fgc_rings_take(const fgc_rings *r, int64_t *taken, fgc_news *out, int64_t most)
{
    int64_t count = 0, latest = 0;
    for (int64_t worker = 0; worker < r->workers; worker++) {
        const int64_t *const ring = news_of(r, worker);
        const int64_t told = read_shared(ring), before = taken[worker];
        if (told == before || before < 0 || count == most)
            continue;
        const int64_t given = r->orders[ORDERS * worker];
        if (told < before || told - before > r->capacity || told > given * r->capacity) {
            out[count++] = (fgc_news){.worker = worker, .round = -1, .index = FGC_NONSENSE};
            taken[worker] = -1 - before;
            continue;
        }
        if (!latest)
            latest = fgc_now();
        for (; taken[worker] < told && count < most; taken[worker]++) {
            const int64_t *const news = ring + LINE + NEWS * (taken[worker] % r->capacity);
            const int64_t time = news[0];
            out[count] = (fgc_news){time < latest ? time : latest, worker, news[1], news[2], 0};
            memcpy(&out[count++].energy, news + 3, sizeof out->energy);
        }
    }
    if (count > 1)
        qsort(out, (size_t)count, sizeof *out, earlier);
    return count;
}

int64_t fgc_rings_want(const fgc_rings *r, int64_t *taken, fgc_news *out, int64_t most, int64_t wanted)
{
    write_shared(r->wanted, wanted);
    return fgc_rings_take(r, taken, out, most);
}

/* Return the round of a worker's last order. */
static int64_t handed(const fgc_rings *r, int64_t worker)
{
    const int64_t *const orders = r->orders + ORDERS * worker;
    return orders[LINE + ORDER * (orders[0] % 2)];
}

/* Take messages of the newest round until they suffice, or until one cannot be taken. News of older rounds,
 * and all from the one that cannot be taken on, are left at the front of `news`. Returns how many these
 * are. */
static int64_t take_in(const fgc_rings *r, const fgc_intake *into, fgc_news *news, int64_t count,
                       double start)
{
    const int64_t newest = r->newest[0];
    int64_t left = 0, i = 0;
    for (fgc_status status = FGC_TOO_FEW; i < count && status == FGC_TOO_FEW; i++) {
        const fgc_news n = news[i];
        if (n.round == newest && n.index == 0 && n.round == handed(r, n.worker))
            status = fgc_arrive(into->arrivals, n.worker, (const void *)into->slots[n.worker], n.energy);
        else if (n.round >= newest)
            break;
        else {
            news[left++] = n;
            continue;
        }
        if (status != FGC_OK && status != FGC_TOO_FEW)
            break;
        /* A worker notes the time before it publishes its news, so times may be out of order. No message
         * comes sooner than the one taken before it. */
        const fgc_arrivals *const a = into->arrivals;
        const double before = a->state[0] > 1 ? into->when[a->numbers[a->state[0] - 2]] : 0.0;
        into->when[n.worker] = fmax(1e-9 * (double)n.time - start, before);
    }
    memmove(news + left, news + i, (size_t)(count - i) * sizeof *news);
    return left + count - i;
}

int64_t fgc_rings_gather(const fgc_rings *r, int64_t *taken, fgc_news *out, int64_t most,
                         const fgc_intake *into, double start, double seconds)
{
    const int64_t *const state = into->arrivals->state, before = state[0];
    const int64_t until = fgc_now() + (int64_t)(1e9 * seconds);
    for (int go_on = 1, others = 0;;) {
        /* Sleep for half of the messages that are lacking: the master reads those while the rest come, and
         * in the end waits for a single one. */
        const int64_t half = (into->least - state[0] + 1) / 2;
        const int64_t count = fgc_rings_want(r, taken, out, most, half > 1 ? half : 1);
        const int64_t left = take_in(r, into, out, count, start);
        if (left || !go_on || (state[0] > before && (into->once || state[1] <= 0)))
            return left;
        if (!count) {
            const int64_t rest = until - fgc_now();
            go_on = hear(into->files, into->bell, rest > 0 ? (int)(rest / 1000000) + 1 : 0, &others) && !others;
        }
    }
}

int64_t fgc_rings_look(const fgc_rings *r, int64_t *taken, fgc_news *out, int64_t most, int files,
                       int bell)
{
    int others;
    hear(files, bell, 0, &others);
    return others ? -1 : fgc_rings_take(r, taken, out, most);
}
