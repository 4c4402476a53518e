/* Kernels on long vectors, whose parts threads share. Parts depend on lengths alone, and the sums of parts
 * are added up in order: no bit of a result depends on which thread did which part. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "pool.h"

/* Lengths of parts, in elements. A part is a block of combine.c (PART), or a sixteenth of a shorter vector,
 * so that all threads end together; it is longer if there would be more than FGC_PIECES parts. Multiples of
 * GRAIN share no cache line and cut no pair. Parts shorter than LEAST_OF_... cost more than they gain;
 * LEAST_OF_ROWS counts the elements of all rows together. */
enum { PART = 16384, GRAIN = 256, LEAST_OF_ROWS = 8192, LEAST_OF_SUMS = 2048, LEAST_OF_VECTORS = 8192 };

static int64_t up_to(int64_t multiple, int64_t x) { return (x + multiple - 1) / multiple * multiple; }

static int64_t part_of(int64_t extent, int64_t least)
{
    const int64_t even = up_to(GRAIN, (extent + 15) / 16);
    if (even < PART)
        return even > least ? even : least;
    const int64_t many = up_to(PART, (extent + FGC_PIECES - 1) / FGC_PIECES);
    return many > PART ? many : PART;
}

static int pieces_of(int64_t extent, int64_t part) { return (int)((extent + part - 1) / part); }

typedef struct {
    fgc_mode mode;
    int flags;
    const uintptr_t *rows;
    const double *coef;
    int64_t count, extent, in_len, out_len, part;
    void *out;
    atomic_int bad;
    double *squares; /* NULL, or for each piece the sums of squares of its rows and of the output */
} combination;

enum { FEW_SUMS = 512 }; /* that lie on the stack */

/* Return how many elements of rows and output a combination goes over: whole pairs, if packed. */
static int64_t extent_of(const fgc_combination *plan)
{
    if (plan->mode != FGC_PACKED)
        return plan->in_len;
    const int64_t extent = plan->in_len > plan->out_len ? plan->in_len : plan->out_len;
    return extent + extent % 2;
}

/* Return where the first `parts` parts end. */
static int64_t end_of(const combination *it, int parts)
{
    return it->extent < parts * it->part ? it->extent : parts * it->part;
}

/* Return an estimate in nanoseconds: an eighth for each real that is read or written, as for rows in the
 * cache. */
static int64_t work_of(const combination *it)
{
    const int reals = it->mode == FGC_REAL_PART || it->mode == FGC_EXPAND ? 2 : 1;
    return (it->count + 2) * it->extent * reals / 8;
}

/* Cut a combination into parts. Returns how many. */
static int cut(combination *it)
{
    it->part = part_of(it->extent, up_to(GRAIN, LEAST_OF_ROWS / (it->count + 2)));
    return pieces_of(it->extent, it->part);
}

#define COMBINE(kind, read, real)                                                                              \
    static void combine_pieces_##kind(void *data, int from, int to)                                            \
    {                                                                                                          \
        combination *const it = data;                                                                          \
        for (int next; from < to; from = next) {                                                               \
            next = it->squares ? from + 1 : to; /* each piece has sums of its own */                           \
            double *const squares = it->squares ? it->squares + from * (it->count + 1) : NULL;                 \
            if (fgc_combine_part_##kind(it->mode, it->rows, it->coef, it->count, from * it->part,              \
                                        end_of(it, next), it->in_len, it->out_len, it->flags, it->out,         \
                                        squares))                                                              \
                atomic_store_explicit(&it->bad, 1, memory_order_relaxed);                                      \
        }                                                                                                      \
    }                                                                                                          \
    fgc_status fgc_combine_rows_##kind(const fgc_combination *plan, const uintptr_t *rows, const double *coef, \
                                       int64_t count, int flags, real *out, double *squares)                   \
    {                                                                                                          \
        combination it = {.mode = plan->mode,                                                                  \
                          .flags = flags,                                                                      \
                          .rows = rows,                                                                        \
                          .coef = coef,                                                                        \
                          .count = count,                                                                      \
                          .extent = extent_of(plan),                                                           \
                          .in_len = plan->in_len,                                                              \
                          .out_len = plan->out_len,                                                            \
                          .out = out};                                                                         \
        double few[FEW_SUMS];                                                                                  \
        const int pieces = cut(&it);                                                                           \
        const int64_t sums = pieces * (count + 1);                                                             \
        if (squares && !(it.squares = sums > FEW_SUMS ? malloc((size_t)sums * sizeof *squares) : few))         \
            return FGC_NO_MEMORY;                                                                              \
        fgc_pool_run(combine_pieces_##kind, &it, pieces, work_of(&it));                                        \
        for (int64_t r = 0; squares && r <= count; r++) {                                                      \
            squares[r] = 0;                                                                                    \
            for (int piece = 0; piece < pieces; piece++)                                                       \
                squares[r] += it.squares[piece * (count + 1) + r];                                             \
        }                                                                                                      \
        if (it.squares != few)                                                                                 \
            free(it.squares);                                                                                  \
        return it.bad ? FGC_NOT_FINITE : FGC_OK;                                                               \
    }
FGC_KINDS(COMBINE)

static double total(const double *sum, int pieces)
{
    double all = 0;
    for (int piece = 0; piece < pieces; piece++)
        all += sum[piece];
    return all;
}

/* A projection has at most so many pieces, whose sums fit the stack. Each is whole rows. */
enum { PROJECTED = 64, SUMS = 1 + 2 * FGC_SIDE * FGC_SIDE };
_Static_assert(LEAST_OF_VECTORS % (2 * FGC_ROW) == 0, "a piece would cut a block");

typedef struct {
    const void *x;
    int64_t len, part;
    const double *left, *right;
    int paired;
    double *sum; /* SUMS numbers of each piece: its sum of squares, and its projections */
} projection;

#define PROJECT(kind, read, real)                                                                            \
    static void project_pieces_##kind(void *data, int from, int to)                                          \
    {                                                                                                        \
        const projection *const it = data;                                                                   \
        for (int piece = from; piece < to; piece++) {                                                        \
            const int64_t lo = piece * it->part, left = it->len - lo;                                        \
            double *const sum = it->sum + (int64_t)SUMS * piece;                                             \
            sum[0] =                                                                                         \
                fgc_project_part_##kind((const read *)it->x + lo, left < it->part ? left : it->part,         \
                                        it->left + lo / FGC_ROW * FGC_SIDE, it->right, it->paired, sum + 1); \
        }                                                                                                    \
    }                                                                                                        \
    double fgc_project_##kind(const read *x, int64_t len, const double *left, const double *right,           \
                              int paired, double *out)                                                       \
    {                                                                                                        \
        double sum[PROJECTED * SUMS];                                                                        \
        const int64_t part = up_to(LEAST_OF_VECTORS, (len + PROJECTED - 1) / PROJECTED);                     \
        projection it = {x, len, part, left, right, paired, sum};                                            \
        const int pieces = pieces_of(len, it.part);                                                          \
        fgc_pool_run(project_pieces_##kind, &it, pieces, len / 1024 * 200);                                  \
        for (int i = 0; i < (1 + paired) * FGC_SIDE * FGC_SIDE; i++) {                                       \
            out[i] = 0;                                                                                      \
            for (int piece = 0; piece < pieces; piece++)                                                     \
                out[i] += sum[SUMS * piece + 1 + i];                                                         \
        }                                                                                                    \
        double square = 0;                                                                                   \
        for (int piece = 0; piece < pieces; piece++)                                                         \
            square += sum[SUMS * piece];                                                                     \
        return square;                                                                                       \
    }
FGC_KINDS(PROJECT)

/* A kernel that returns a sum over vectors of one length, with some numbers as parameters. */
typedef double (*sum_kernel)(void *const *vector, const double *by, int64_t len);

typedef struct {
    sum_kernel kernel;
    char *vector[4];
    double by[4];
    size_t size[4]; /* of an element of each vector */
    int64_t len, part;
    double sum[FGC_PIECES];
} vectors;

static void sum_pieces(void *data, int from, int to)
{
    vectors *const it = data;
    for (int piece = from; piece < to; piece++) {
        const int64_t lo = piece * it->part;
        void *vector[4];
        for (int i = 0; i < 4; i++)
            vector[i] = it->vector[i] ? it->vector[i] + (size_t)lo * it->size[i] : NULL;
        it->sum[piece] = it->kernel(vector, it->by, it->len - lo < it->part ? it->len - lo : it->part);
    }
}

/* Add up the sums of all parts. `cost`: nanoseconds for a thousand elements. */
static double sum_of(sum_kernel kernel, const size_t *size, const void *const *vector, const double *by,
                     int64_t len, int64_t cost)
{
    vectors it; /* not initialised: clearing its sums would take longer than short vectors do */
    for (int i = 0; i < 4; i++)
        it.vector[i] = (char *)vector[i], it.size[i] = size[i], it.by[i] = by[i];
    it.kernel = kernel;
    it.len = len;
    it.part = part_of(len, LEAST_OF_VECTORS);
    const int pieces = pieces_of(len, it.part);
    fgc_pool_run(sum_pieces, &it, pieces, len / 1024 * cost);
    return total(it.sum, pieces);
}

#define LISTED(...) {__VA_ARGS__}
#define SIZES(...) FOUR_SIZES(__VA_ARGS__, "", "", "", "")
#define FOUR_SIZES(a, b, c, d, ...) {sizeof *(a), sizeof *(b), sizeof *(c), sizeof *(d)}
#define FGC_KERNEL(type, name, parameters, arguments)
#define FGC_SUM(name, kind, real, parameters, vectors, numbers, cost)                                        \
    double fgc_##name##_##kind parameters                                                                    \
    {                                                                                                        \
        const void *const vector[4] = LISTED vectors;                                                        \
        const size_t size[4] = SIZES vectors;                                                                \
        const double by[4] = LISTED numbers;                                                                 \
        return sum_of(fgc_##name##_part_##kind, size, vector, by, len, cost);                                \
    }
#include "kernels.def"

typedef struct {
    const fgc_completion_plan *plan;
    const fgc_delays *delays;
    int64_t first;
    double *late;
    int64_t rounds, part;
    double receive, overhead;
    int interrupted;
    double *time;
    int64_t *messages, *workers, *computations;
    atomic_int failed;
} simulation;

static void simulate_pieces(void *data, int from, int to)
{
    simulation *const it = data;
    const int64_t lo = from * it->part, hi = to * it->part;
    const int64_t count = (it->rounds < hi ? it->rounds : hi) - lo;
    if (fgc_completion_part(it->plan, it->delays, it->first + lo, it->late, count, it->receive, it->overhead,
                            it->interrupted, it->time + lo, it->messages + lo, it->workers + lo,
                            it->computations + lo))
        atomic_store_explicit(&it->failed, 1, memory_order_relaxed);
}

fgc_status fgc_completion(const fgc_completion_plan *plan, const fgc_delays *delays, int64_t first,
                          double *late, int64_t rounds, double receive, double overhead, int interrupted,
                          double *time, int64_t *messages, int64_t *workers, int64_t *computations)
{
    enum { LINE = 8, FULL = 256 }; /* rounds: whose results fill a cache line; of a full part */
    simulation it = {.plan = plan,
                     .delays = delays,
                     .first = first,
                     .late = late,
                     .rounds = rounds,
                     .receive = receive,
                     .overhead = overhead,
                     .interrupted = interrupted,
                     .time = time,
                     .messages = messages,
                     .workers = workers,
                     .computations = computations};
    /* A sixteenth of the rounds, or FULL if that is less; more if there would be too many parts. Each part
     * sorts the messages by block, and learns when rounds are usually ready. */
    const int64_t sixteenth = (rounds + 15) / 16, most = FGC_PIECES / 16;
    const int64_t even = (rounds + most - 1) / most, full = sixteenth < FULL ? sixteenth : FULL;
    /* At least two nanoseconds for a delay, and one for a message, or eight if messages are put in order. */
    const int64_t each = plan->kind == FGC_BLOCKS || plan->kind == FGC_CELLS ? 1 : 8;
    const int64_t cost = rounds * (2 * plan->workers + each * plan->first[plan->workers]);
    /* Unless `interrupted`, a round depends on the one before it: all rounds are one part. */
    it.part = interrupted ? up_to(LINE, even > full ? even : full) : rounds;
    if (rounds)
        fgc_pool_run(simulate_pieces, &it, pieces_of(rounds, it.part), cost);
    return it.failed ? FGC_NO_MEMORY : FGC_OK;
}
