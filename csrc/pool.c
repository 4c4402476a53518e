/* Threads that share the pieces of one job. Each begins with its own share of them, neighbours, which is the
 * same in each job of as many pieces: it finds in its caches what it read before. It takes half of what is
 * left of its share at a time, and reads that without a break; when nothing is left, half of what is left of
 * another's, from the end.
 *
 * They are started when a job is first worth them, and never end. After a job each spins for a while,
 * so that the next one finds it awake (0.2 us; a sleeping one takes 5 to 50), and then sleeps.
 *
 * There is one job at a time. Who finds the threads at another caller's does his own work alone. Nobody
 * waits for a thread that has not begun: others do its share. */
#define _GNU_SOURCE
#include "pool.h"

#include <stdatomic.h>
#include <string.h>

#include "clock.h"

#ifndef _WIN32
#include <pthread.h>
#include <sched.h>
#include <signal.h>
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

/* Nanoseconds. A job of less than WAKING wakes nobody, unless the last one ended a moment ago: then more
 * are to come. The caller of a job spins for PATIENCE before it sleeps until others' pieces are done. */
enum { WAKING = 60000, PATIENCE = 50000 };

/* One more thread for so much work. */
enum { EACH = 4000 };

/* A thread that is interrupted with a piece in hand costs more than alone the job would have taken. What
 * others gain before, up to CREDIT nanoseconds, pays for that; what is lost beyond is followed by so many
 * times as much in which the caller works alone: others cost a twentieth at most. */
enum { CREDIT = 4000000, REGRET = 20 };

enum { MOST_HELPERS = 255 };

/* What is written by one side and awaited by the other has a cache line of its own. */
#define APART _Alignas(64)

/* Pieces that a thread has not begun: next .. end-1, of which it takes the first and others the last.
 *     number << 32 | next << 16 | end
 * They belong to who changed this by a compare-and-swap, which fails if the job is another by now. A job
 * does not end before the pieces taken are done: so `job` and `data` are only read by who has some in hand,
 * and a thread that comes too late touches nothing of a caller that has left. */
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
    share shares[MOST_HELPERS + 1]; /* the caller's first */
    APART atomic_int sharing;       /* how many there are in this job */
    fgc_job job;
    void *data;
    APART atomic_uint undone; /* pieces; what the caller sleeps on */
    atomic_int waiting;       /* it does */

    /* Whose job is under way holds `busy`, and writes what follows. */
    APART atomic_flag busy;
    unsigned number;
    int started;
    int64_t ended;   /* the last job, a time of now() */
    int64_t balance; /* what jobs gained by others, less what they lost */
#ifdef __linux__
    int processor;    /* the caller's when it last was another, plus 1, */
    cpu_set_t others; /* and what it may use besides */
#endif
    atomic_llong called, shared; /* jobs that others were called to, and those they had part in */

    atomic_int threads, hooked;
    atomic_llong spin, least, alone_until;
    helper helpers[MOST_HELPERS];
} pool = {.busy = ATOMIC_FLAG_INIT, .threads = 1, .spin = FGC_SPIN, .least = FGC_LEAST,
          .balance = CREDIT};

#if defined(__linux__) && !defined(FGC_NO_FUTEX)
/* Sleep until `word` is not `seen`. */
static void sleep_on(atomic_uint *word, unsigned seen)
{
    while (atomic_load(word) == seen)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

/* Wake who sleeps on `word`, which was changed before. */
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

/* Look at `word` for so long, or until it is not `seen`; what it is. */
static unsigned spin_on(atomic_uint *word, unsigned seen, int64_t nanoseconds)
{
    for (int64_t until = 0;;) {
        for (int turn = 0; turn < 16; turn++) { /* reading the clock takes as long */
            const unsigned found = atomic_load_explicit(word, memory_order_acquire);
            if (found != seen)
                return found;
            RELAX();
        }
        const int64_t time = now();
        if (!until)
            until = time + nanoseconds;
        else if (time > until)
            return seen;
    }
}

/* Do pieces of this share, by its owner or another, until none is left to take; how many. */
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

/* Do pieces of this job until none is left to take: of share `me`, then of those that follow. How many. */
static int work_on(unsigned number, int me)
{
    const int sharing = atomic_load_explicit(&pool.sharing, memory_order_relaxed);
    int done = 0;
    for (int i = 0; i < sharing; i++)
        done += work_on_share(number, pool.shares + (me + i) % sharing, i == 0 && me < sharing);
    return done;
}

static void *serve(void *argument)
{
    helper *const me = argument;
    for (unsigned seen = 0;;) { /* a new thread joins the job it was made for */
        const int64_t spin = atomic_load_explicit(&pool.spin, memory_order_relaxed);
        unsigned called = spin_on(&me->called, seen, spin);
        if (called == seen) {
            /* Announced before the word is looked at again, as a caller changes it before it looks for
             * sleepers: one of the two sees the other. */
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

#ifndef _WIN32 /* where nothing forks */
/* A forked child has none of the threads; a job under way in another thread of its parent is not its. */
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

/* So many threads, if there can be; how many there are. */
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
        CloseHandle(thread); /* it goes on */
    }
    return pool.started;
}
#else
static int start(int helpers)
{
    /* Signals are for the caller's threads, but for those that a fault raises in the thread itself. */
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

/* Whether the caller may use another processor than the one it is on. */
static int room(void)
{
#ifdef __linux__
    const int processor = sched_getcpu();
    if (processor == pool.processor - 1 || processor < 0 || processor >= CPU_SETSIZE)
        return 1;
    cpu_set_t others;
    if (sched_getaffinity(0, sizeof others, &others)) /* more processors than such a set holds */
        return 1;
    CPU_CLR(processor, &others);
    if (!CPU_COUNT(&others))
        return 0;
    pool.processor = processor + 1;
    pool.others = others;
#endif
    return 1;
}

/* See to it that threads run where the caller does not. Left to itself, the kernel wakes some on the
 * caller's own processor if others are taken, or look so: by BLAS's threads that spin, say. */
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

/* Cut the job into so many shares, from where on anyone may work on it. */
static void publish(int pieces, int sharing)
{
    atomic_store_explicit(&pool.sharing, sharing, memory_order_relaxed);
    for (int i = 0; i < sharing; i++) {
        const unsigned next = (unsigned)(pieces * i / sharing);
        const unsigned end = (unsigned)(pieces * (i + 1) / sharing);
        atomic_store_explicit(&pool.shares[i].left,
                              (uint64_t)pool.number << 32 | (uint64_t)next << 16 | end,
                              memory_order_release);
    }
}

/* Call threads to the job that was published; how many. Those asleep only if they are worth `waking`. */
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

/* Wait until others have done the pieces that they took. */
static void await_others(void)
{
    unsigned undone = atomic_load_explicit(&pool.undone, memory_order_acquire);
    if (!undone)
        return;
    for (const int64_t begun = now(); undone && now() - begun < PATIENCE;)
        undone = spin_on(&pool.undone, undone, PATIENCE);
    atomic_store(&pool.waiting, 1);
    while ((undone = atomic_load(&pool.undone)))
        sleep_on(&pool.undone, undone);
    atomic_store(&pool.waiting, 0);
}

static void count(atomic_llong *number)
{
    atomic_store_explicit(number, atomic_load_explicit(number, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static void work_with_others(fgc_job job, void *data, int pieces, int helpers, int64_t work)
{
    const int always = !atomic_load_explicit(&pool.least, memory_order_relaxed);
    int64_t begun = now();
    const int waking = work >= WAKING || always ||
                       begun - pool.ended < atomic_load_explicit(&pool.spin, memory_order_relaxed);
    if (!room())
        helpers = 0;
    else if (waking && pool.started < helpers) {
        helpers = start(helpers);
        begun = now(); /* this happens once */
    } else if (helpers > pool.started)
        helpers = pool.started;
    place(helpers);
    if (!helpers || !(waking || any_awake(helpers))) {
        job(data, 0, pieces);
        pool.ended = now();
        return;
    }

    pool.number++;
    pool.job = job;
    pool.data = data;
    atomic_store_explicit(&pool.undone, (unsigned)pieces, memory_order_relaxed);
    publish(pieces, helpers + 1);
    const int called = call(helpers, waking);
    const int64_t called_at = now();
    const int own = work_on(pool.number, 0);
    const int64_t done_at = now();
    if (own < pieces)
        await_others();
    pool.ended = own < pieces ? now() : done_at;
    if (own && own < pieces) {
        const int64_t alone = (done_at - called_at) * pieces / own;
        pool.balance += alone - (pool.ended - begun);
        if (pool.balance > CREDIT)
            pool.balance = CREDIT;
        if (pool.balance < 0) {
            atomic_store_explicit(&pool.alone_until, pool.ended - REGRET * pool.balance,
                                  memory_order_relaxed);
            pool.balance = 0;
        }
    }
    if (called)
        count(&pool.called);
    if (own < pieces)
        count(&pool.shared);
}

/* How many other threads are to be called to so much work, if they are free. */
static int wanted(int pieces, int64_t work)
{
    const int64_t least = atomic_load_explicit(&pool.least, memory_order_relaxed);
    int helpers = atomic_load_explicit(&pool.threads, memory_order_relaxed) - 1;
    helpers = helpers < pieces - 1 ? helpers : pieces - 1;
    if (!least || helpers <= 0)
        return helpers;
    if (work < least || now() < atomic_load_explicit(&pool.alone_until, memory_order_relaxed))
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
