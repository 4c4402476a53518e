/* Threads that share the pieces of one job. Each thread begins with its own share, a run of neighbouring
 * pieces. It is the same in every job of as many pieces, so that the thread finds in its caches what it
 * read before. A thread takes half of what is left of its share at a time, and reads that without a
 * break. When its share is empty, it takes half of what is left of another thread's share, from the end.
 *
 * Threads are started when a job is first worth them, and never end. After a job each spins for a while,
 * so that the next job finds it awake (0.2 us; waking a sleeping one takes 5 to 50), and then sleeps.
 *
 * There is one job at a time. A caller that finds the threads busy with another caller's job works
 * alone. Nobody waits for a thread that has not begun: others do its share. */
#define _GNU_SOURCE
#include "pool.h"

#include <stdatomic.h>
#include <string.h>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#endif
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#define RELAX() _mm_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("yield")
#else
#define RELAX() ((void)0)
#endif

/* Nanoseconds. A job of less than WAKING wakes no sleeping thread, unless the last job ended a moment
 * ago: then more jobs are likely. The caller of a job spins for PATIENCE, and then sleeps until the
 * other threads' pieces are done. */
enum { WAKING = 60000, PATIENCE = 50000 };

/* Nanoseconds of work for which one more thread is called. */
enum { EACH = 4000 };

/* A thread that the system interrupts while it holds a piece can make the job slower than the caller alone.
 * The time that threads gained before, up to CREDIT nanoseconds, pays for such losses. After a loss beyond
 * it, the caller works alone for REGRET times as long: threads cost a twentieth at most. */
enum { CREDIT = 4000000, REGRET = 20 };

enum { MOST_HELPERS = 255 };

/* A word that one side writes and the other awaits has a cache line of its own. */
#define APART _Alignas(64)

/* The pieces that nobody has begun: next .. end-1. The owner takes the first of them, others the last.
 *     number << 32 | next << 16 | end
 * A thread owns the pieces that it has taken by compare-and-swap, which fails if the job is another by
 * now. A job ends only when all pieces taken are done. So only threads that hold pieces read `job` and
 * `data`, and a thread that comes too late touches no memory of a caller that has left. */
typedef struct {
    APART _Atomic uint64_t left;
} share;

typedef struct {
    APART atomic_uint called; /* the number of the last job that this thread was called to */
    atomic_int asleep;
#ifndef _WIN32
    pthread_t thread;
#endif
    int apart; /* the processor that it keeps away from, plus 1 */
} helper;

static struct {
    share shares[MOST_HELPERS + 1]; /* the caller's is the first */
    APART atomic_int sharing;       /* the number of shares in this job */
    fgc_job job;
    void *data;
    APART atomic_uint undone; /* the pieces not done yet; the caller sleeps on it */
    atomic_int waiting;       /* whether the caller sleeps */

    /* The caller whose job is under way holds `busy`; only it writes the following. */
    APART atomic_flag busy;
    unsigned number;
    int started;
    int64_t ended;   /* when the last job ended, a time of fgc_now() */
    int64_t balance; /* the time that jobs gained by other threads, less the time that they lost */
#ifdef __linux__
    int processor;    /* the processor the caller was last seen on, plus 1, */
    cpu_set_t others; /* and the others that it may use */
#endif
    atomic_llong called, shared; /* jobs that threads were called to; jobs of which they did a part */

    atomic_int threads, hooked;
    atomic_llong spin, least, alone_until;
    helper helpers[MOST_HELPERS];
} pool = {.busy = ATOMIC_FLAG_INIT, .threads = 1, .spin = FGC_SPIN, .least = FGC_LEAST, .balance = CREDIT};

int64_t fgc_now(void)
{
#ifdef _WIN32
    LARGE_INTEGER ticks, each_second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&each_second);
    return (int64_t)(1e9 * (double)ticks.QuadPart / (double)each_second.QuadPart);
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
#endif
}

#if defined(__linux__) && !defined(FGC_NO_FUTEX)
/* Sleep until `word` is not `seen`. */
static void sleep_on(atomic_uint *word, unsigned seen)
{
    while (atomic_load(word) == seen)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

/* Wake the thread that sleeps on `word`, after a change of it. */
static void wake(atomic_uint *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

static void renew(void) {}
#elif defined(_WIN32)
static SRWLOCK lock = SRWLOCK_INIT;
static CONDITION_VARIABLE changed = CONDITION_VARIABLE_INIT;

static void sleep_on(atomic_uint *word, unsigned seen)
{
    AcquireSRWLockExclusive(&lock);
    while (atomic_load(word) == seen)
        SleepConditionVariableSRW(&changed, &lock, INFINITE, 0);
    ReleaseSRWLockExclusive(&lock);
}

static void wake(atomic_uint *word)
{
    (void)word;
    AcquireSRWLockExclusive(&lock);
    WakeAllConditionVariable(&changed);
    ReleaseSRWLockExclusive(&lock);
}
#else
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void sleep_on(atomic_uint *word, unsigned seen)
{
    pthread_mutex_lock(&mutex);
    while (atomic_load(word) == seen)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void wake(atomic_uint *word)
{
    (void)word;
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void renew(void)
{
    pthread_mutex_init(&mutex, NULL);
    pthread_cond_init(&changed, NULL);
}
#endif

/* Spin until `word` is not `seen`, or for so many nanoseconds. Returns its value. */
static unsigned spin_on(atomic_uint *word, unsigned seen, int64_t nanoseconds)
{
    for (int64_t until = 0;;) {
        for (int turn = 0; turn < 16; turn++) { /* takes as long as reading the clock once */
            const unsigned found = atomic_load_explicit(word, memory_order_acquire);
            if (found != seen)
                return found;
            RELAX();
        }
        const int64_t time = fgc_now();
        if (!until)
            until = time + nanoseconds;
        else if (time > until)
            return seen;
    }
}

/* Do pieces of a share until none is left to take. `own`: the caller owns the share. Returns how many
 * pieces were done. */
static int work_on_share(unsigned number, share *of, int own)
{
    uint64_t found = atomic_load_explicit(&of->left, memory_order_acquire);
    for (int done = 0;;) {
        const unsigned next = found >> 16 & 0xffff, end = found & 0xffff;
        if (found >> 32 != number || next >= end)
            return done;
        const unsigned taken = (end - next + 1) / 2, from = own ? next : end - taken;
        const uint64_t rest = own ? found + ((uint64_t)taken << 16) : found - taken;
        if (!atomic_compare_exchange_weak_explicit(&of->left, &found, rest, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        pool.job(pool.data, (int)from, (int)(from + taken));
        done += (int)taken;
        if (atomic_fetch_sub(&pool.undone, taken) == taken && atomic_load(&pool.waiting))
            wake(&pool.undone);
        found = atomic_load_explicit(&of->left, memory_order_acquire);
    }
}

/* Do pieces of a job until none is left to take: first of share `me`, then of the shares after it. Returns
 * how many were done. */
static int work_on(unsigned number, int me)
{
    const int sharing = atomic_load_explicit(&pool.sharing, memory_order_relaxed);
    int done = 0;
    for (int i = 0; i < sharing; i++)
        done += work_on_share(number, pool.shares + (me + i) % sharing, i == 0 && me < sharing);
    return done;
}

/* The life of a helper: await a job, and work on it. */
static void *serve(void *argument)
{
    helper *const me = argument;
    for (unsigned seen = 0;;) { /* a new thread joins the job it was made for */
        const int64_t spin = atomic_load_explicit(&pool.spin, memory_order_relaxed);
        unsigned called = spin_on(&me->called, seen, spin);
        if (called == seen) {
            /* This thread sets `asleep` and then reads the word again; a caller changes the word and then
             * reads `asleep`. So at least one of them sees the other's change. */
            atomic_store(&me->asleep, 1);
            sleep_on(&me->called, seen);
            atomic_store(&me->asleep, 0);
            called = atomic_load_explicit(&me->called, memory_order_acquire);
        }
        seen = called;
        work_on(seen, 1 + (int)(me - pool.helpers));
    }
    return NULL;
}

#ifndef _WIN32 /* Windows does not fork */
/* Begin anew in a forked child: it has none of the threads, and a job of another thread of its parent is
 * not its own. */
static void forked(void)
{
    renew();
    pool.started = 0;
    atomic_store(&pool.alone_until, 0);
    memset(pool.helpers, 0, sizeof pool.helpers);
    atomic_store(&pool.waiting, 0);
    for (int i = 0; i <= MOST_HELPERS; i++)
        atomic_store_explicit(&pool.shares[i].left, 0, memory_order_relaxed);
    atomic_flag_clear(&pool.busy);
}
#endif

void fgc_pool_set(int threads, int64_t spin, int64_t least)
{
#ifndef _WIN32
    if (!atomic_exchange(&pool.hooked, 1))
        pthread_atfork(NULL, NULL, forked);
#endif
    if (threads > 0)
        atomic_store(&pool.threads, threads <= MOST_HELPERS ? threads : MOST_HELPERS + 1);
    if (spin >= 0)
        atomic_store(&pool.spin, spin);
    if (least >= 0)
        atomic_store(&pool.least, least);
}

void fgc_pool_counts(int64_t *called, int64_t *shared)
{
    *called = atomic_load(&pool.called);
    *shared = atomic_load(&pool.shared);
}

enum { STACK = 1 << 20 }; /* some systems give 128 kB, which a block fills */

/* Start threads until there are `helpers`, if the system allows it. Returns how many there are. */
#ifdef _WIN32
static DWORD WINAPI begin(void *argument)
{
    serve(argument);
    return 0;
}

static int start(int helpers)
{
    for (; pool.started < helpers; pool.started++) {
        const HANDLE thread = CreateThread(NULL, STACK, begin, pool.helpers + pool.started, 0, NULL);
        if (!thread)
            break;
        CloseHandle(thread); /* the thread goes on */
    }
    return pool.started;
}
#else
static int start(int helpers)
{
    /* Leave signals to the caller's threads, except those that a fault in the thread itself raises. */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV), sigdelset(&all, SIGBUS), sigdelset(&all, SIGFPE), sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK);
    for (; pool.started < helpers; pool.started++) {
        helper *const new = pool.helpers + pool.started;
        if (pthread_create(&new->thread, &attributes, serve, new))
            break;
#ifdef __linux__
        pthread_setname_np(new->thread, "fastgc");
#endif
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool.started;
}
#endif

/* Return whether the caller may use another processor than the one it is on. */
static int room(void)
{
#ifdef __linux__
    const int processor = sched_getcpu();
    if (processor == pool.processor - 1 || processor < 0 || processor >= CPU_SETSIZE)
        return 1;
    cpu_set_t others;
    if (sched_getaffinity(0, sizeof others, &others)) /* more processors than cpu_set_t holds */
        return 1;
    CPU_CLR(processor, &others);
    if (!CPU_COUNT(&others))
        return 0;
    pool.processor = processor + 1;
    pool.others = others;
#endif
    return 1;
}

/* Keep threads off the caller's processor. By itself the system wakes some on it if other processors are
 * taken or look so, for example by BLAS's threads that spin. */
static void place(int helpers)
{
#ifdef __linux__
    for (helper *one = pool.helpers; one < pool.helpers + helpers; one++)
        if (one->apart != pool.processor) {
            one->apart = pool.processor;
            pthread_setaffinity_np(one->thread, sizeof pool.others, &pool.others);
        }
#else
    (void)helpers;
#endif
}

static int any_awake(int helpers)
{
    for (const helper *one = pool.helpers; one < pool.helpers + helpers; one++)
        if (!atomic_load_explicit(&one->asleep, memory_order_relaxed))
            return 1;
    return 0;
}

/* Cut the job into shares. From then on any thread may work on it. */
static void publish(int pieces, int sharing)
{
    atomic_store_explicit(&pool.sharing, sharing, memory_order_relaxed);
    for (int i = 0; i < sharing; i++) {
        const unsigned next = (unsigned)(pieces * i / sharing);
        const unsigned end = (unsigned)(pieces * (i + 1) / sharing);
        atomic_store_explicit(&pool.shares[i].left, (uint64_t)pool.number << 32 | (uint64_t)next << 16 | end,
                              memory_order_release);
    }
}

/* Call threads to the published job; sleeping ones only if `waking`. Returns how many were called. */
static int call(int helpers, int waking)
{
    int called = 0;
    for (helper *one = pool.helpers; one < pool.helpers + helpers; one++)
        if (waking || !atomic_load_explicit(&one->asleep, memory_order_relaxed)) {
            atomic_store(&one->called, pool.number);
            if (atomic_load(&one->asleep))
                wake(&one->called);
            called++;
        }
    return called;
}

/* Wait until other threads have done the pieces that they took. */
static void await_others(void)
{
    unsigned undone = atomic_load_explicit(&pool.undone, memory_order_acquire);
    if (!undone)
        return;
    for (const int64_t begun = fgc_now(); undone && fgc_now() - begun < PATIENCE;)
        undone = spin_on(&pool.undone, undone, PATIENCE);
    atomic_store(&pool.waiting, 1);
    while ((undone = atomic_load(&pool.undone)))
        sleep_on(&pool.undone, undone);
    atomic_store(&pool.waiting, 0);
}

static void count(atomic_llong *number)
{
    atomic_store_explicit(number, atomic_load_explicit(number, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* Do a job with other threads, if some can be had. Keeps count of the time that they gain or lose. */
static void work_with_others(fgc_job job, void *data, int pieces, int helpers, int64_t work)
{
    const int always = !atomic_load_explicit(&pool.least, memory_order_relaxed);
    int64_t begun = fgc_now();
    const int waking = work >= WAKING || always ||
                       begun - pool.ended < atomic_load_explicit(&pool.spin, memory_order_relaxed);
    if (!room())
        helpers = 0;
    else if (waking && pool.started < helpers) {
        helpers = start(helpers);
        begun = fgc_now(); /* starting threads happens once: do not count it */
    } else if (helpers > pool.started)
        helpers = pool.started;
    place(helpers);
    if (!helpers || !(waking || any_awake(helpers))) {
        job(data, 0, pieces);
        pool.ended = fgc_now();
        return;
    }

    pool.number++;
    pool.job = job;
    pool.data = data;
    atomic_store_explicit(&pool.undone, (unsigned)pieces, memory_order_relaxed);
    publish(pieces, helpers + 1);
    const int called = call(helpers, waking);
    const int64_t called_at = fgc_now();
    const int own = work_on(pool.number, 0);
    const int64_t done_at = fgc_now();
    if (own < pieces)
        await_others();
    pool.ended = own < pieces ? fgc_now() : done_at;
    if (own && own < pieces) {
        const int64_t alone = (done_at - called_at) * pieces / own;
        pool.balance += alone - (pool.ended - begun);
        if (pool.balance > CREDIT)
            pool.balance = CREDIT;
        if (pool.balance < 0) {
            atomic_store_explicit(&pool.alone_until, pool.ended - REGRET * pool.balance, memory_order_relaxed);
            pool.balance = 0;
        }
    }
    if (called)
        count(&pool.called);
    if (own < pieces)
        count(&pool.shared);
}

/* Return how many other threads a job of `work` nanoseconds should call, if they are free. */
static int wanted(int pieces, int64_t work)
{
    const int64_t least = atomic_load_explicit(&pool.least, memory_order_relaxed);
    int helpers = atomic_load_explicit(&pool.threads, memory_order_relaxed) - 1;
    helpers = helpers < pieces - 1 ? helpers : pieces - 1;
    if (!least || helpers <= 0)
        return helpers;
    if (work < least || fgc_now() < atomic_load_explicit(&pool.alone_until, memory_order_relaxed))
        return 0;
    return helpers < work / EACH ? helpers : (int)(work / EACH);
}

void fgc_pool_run(fgc_job job, void *data, int pieces, int64_t work)
{
    const int helpers = wanted(pieces, work);
    if (helpers > 0 && !atomic_flag_test_and_set_explicit(&pool.busy, memory_order_acquire)) {
        work_with_others(job, data, pieces, helpers, work);
        atomic_flag_clear_explicit(&pool.busy, memory_order_release);
        return;
    }
    if (pieces > 0)
        job(data, 0, pieces);
}
