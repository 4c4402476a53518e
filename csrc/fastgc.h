/* fastgc: compiled kernels for gradient coding, for programs in C and C++.
 *
 *     cc program.c -I "$(python -c 'import fastgc; print(fastgc.get_include())')" \
 *         "$(python -c 'import fastgc; print(fastgc.get_library())')" -lm -pthread
 *
 * docs/kernels_only.md has a whole program. Contracts shared by every function here:
 *  - nothing is allocated that outlives the call; callers own all memory;
 *  - inputs are never written; `out` must not overlap them;
 *  - functions keep no state between calls but threads (see fgc_pool_set), so any number may run at once
 *    (fgc_simd_select excepted);
 *  - complex numbers are pairs of doubles, as `double complex` and std::complex<double> are;
 *  - sizes count elements, not bytes, and are trusted: Python's functions check them before they call.
 */
#ifndef FASTGC_H
#define FASTGC_H

#ifndef FGC_CDEF /* cffi reads this file preprocessed, and knows these types */
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* For each kind of rows of(kind, what a real of it is read as, what it is combined to). */
#define FGC_KINDS(of)                                                                              \
    of(float, float, float) of(double, double, double) of(half, uint16_t, float)                   \
        of(bfloat, uint16_t, float)

typedef enum {
    FGC_OK = 0,
    FGC_OUT_OF_RANGE, /* a survivor is no worker of the code; *where = its position */
    FGC_DUPLICATE,    /* a survivor is named twice; *where = the second position */
    FGC_TOO_FEW,      /* *where = how many more are needed at least */
    FGC_OVERFLOW,     /* an entry of the vector does not fit a double; *where = its position */
    FGC_NO_MEMORY,
    FGC_NOT_FINITE, /* an input or a result is NaN or Inf, or an order reaches outside */
    FGC_IMPRECISE,  /* the vector is written, but longer than it was to be */
    FGC_MISPLACED   /* an output lies in the memory of an input, or an input is not aligned */
} fgc_status;

typedef enum {
    FGC_LOCATOR, /* product over the stragglers, O(f s) */
    FGC_LOOKUP,  /* Algorithm 3: product over the other survivors, O(f^2) */
    FGC_SPREAD   /* locator, or lookup where that has fewer factors; blocks with more survivors than
                    needed whose vector's 2-norm is over 1 are decoded again from the `need` that are
                    spread best, O(f need), others' 0 */
} fgc_method;

/* A direct sum of cyclic codes: block b is worker start[b] .. start[b+1]-1, a Reed-Solomon code of
 * its own length m with root exp(2 pi i q / m), decodable from any need[b] of its workers.
 *
 * Tables in polar form. With theta = pi q t / m, for any integer t,
 *     1 - alpha^t = 2 sin(theta) * exp(i (theta - pi/2)),
 * so a product of such factors is a real product times one phase whose angle is a multiple of pi/m
 * (and of pi/2) known exactly as an integer.
 *   sine[offset[b] + m + t]      = 2 sin(theta),      t = -m .. m - 1, then PAD ones
 *   cosecant[offset[b] + m + t]  = 1 / (2 sin(theta)), and 1 at t = 0, -m
 *   phase[phase_offset[b] + 2 u] = cos(pi u / m), then sin(pi u / m),  u = 0 .. 2 m - 1
 */
typedef struct {
    int64_t workers, blocks;
    const int64_t *start, *need, *q, *offset, *phase_offset;
    const double *sine, *cosecant, *phase;
} fgc_cyclic;

/* The doubles of the widest vector: ones after each sine and cosecant table, so that full vectors may be read at its end. */
enum { FGC_PAD = 8 };

/* Fills the tables of one block: `sine` and `cosecant` have room for 2 m + FGC_PAD numbers, `phase` for 4 m.
 * q is coprime to m. */
void fgc_cyclic_tables(int64_t m, int64_t q, double *sine, double *cosecant, double *phase);

/* Work space: so many bytes for each worker, aligned as doubles are. */
enum { FGC_WORK = 25 };

/* out[2l], out[2l+1] = a for survivors[l]: a_F B_F = 1. FGC_IMPRECISE unless the sum of |a|^2 is at
 * most `longest`. */
fgc_status fgc_decoding_vector(const fgc_cyclic *code, const int64_t *survivors, double *out,
                               int64_t *where, void *work, double longest, fgc_method method,
                               int64_t f);

/* The same for many rounds: masks[r n + i] is 1 if worker i survived round r, else 0, and row r of out
 * becomes its vector, with 0 for those that did not. where[r] is 0, or how many more are needed (and
 * row r is not written), or -1 if an entry does not fit a double, or -2 if the sum of their squares is
 * over `longest`. Masks are written by FGC_SPREAD. */
fgc_status fgc_decoding_vectors(const fgc_cyclic *code, unsigned char *masks, double *out,
                                int64_t *where, double longest, fgc_method method, int64_t rounds);

/* present[i] = 1 for survivors, 0 for the others. */
fgc_status fgc_mark(const fgc_cyclic *code, const int64_t *survivors, unsigned char *present,
                    int64_t *where, int64_t f);

/* The vector whose entries' magnitudes are known: size[i] = |a_i| for every worker, of survivors
 * marked by fgc_mark. */
fgc_status fgc_polar_vector(const fgc_cyclic *code, const int64_t *survivors,
                            const unsigned char *present, const double *size, double *out,
                            int64_t *where, void *work, int64_t f);

/* bits[i / 8] >> i % 8 & 1 = whether i is among the survivors, for i = 0 .. n-1, and zeros after it.
 * Returns 0 if these are distinct and within 0 .. n-1, else 1, with bits of no meaning. */
int fgc_survivor_mask(int64_t n, const int64_t *survivors, uint8_t *bits, int64_t f);

/* The locator's products of a code, kept current while workers come and go. The caller's, who sets
 * away[] and calls fgc_stream_rebuild() first. */
typedef struct {
    double *product;          /* of each worker, and room for FGC_PAD more, as of the next: */
    int64_t *exponent;        /* product[i] 2^exponent[i] = the product of 2 sin(theta) over those */
                              /* of i's block that are away, i itself left out */
    int64_t *lost, *lost_sum; /* of each block: how many are away, the sum of their indices there, */
    int64_t *pending;         /* and factors since its products were normalised */
    unsigned char *away;      /* 1 for workers that are */
    const double *factor;     /* as sine, and 1 at t = 0, -m */
} fgc_stream;

/* All products from away[] alone: O(workers) times the stragglers or the others, if they are fewer. */
void fgc_stream_rebuild(const fgc_cyclic *code, const fgc_stream *stream, void *work);

/* A worker that is not away leaves, or one that is joins: O(1) for each of its block. Each adds about
 * two roundings to every product. */
void fgc_stream_leave(const fgc_cyclic *code, const fgc_stream *stream, int64_t worker);
void fgc_stream_join(const fgc_cyclic *code, const fgc_stream *stream, int64_t worker);

/* As fgc_decoding_vector by the locator, of the workers that are not away: `survivors` are those, in
 * any order. O(workers). Returns FGC_OK, FGC_TOO_FEW or FGC_OVERFLOW. */
fgc_status fgc_stream_vector(const fgc_cyclic *code, const fgc_stream *stream,
                             const int64_t *survivors, double *out, int64_t *where, void *work,
                             int64_t f);

/* How rows and output relate in a combination out = sum_r coef[r] * row[r]. */
typedef enum {
    FGC_REAL,      /* real coefficients, real rows, real out */
    FGC_PACKED,    /* complex coefficients; rows and out are reals that stand for complex pairs */
    FGC_REAL_PART, /* complex coefficients, complex rows, out = the real part */
    FGC_EXPAND     /* complex coefficients, real rows, complex out */
} fgc_mode;

/* Flags of combinations. */
enum {
    FGC_ACCUMULATE = 1, /* add to out instead of overwriting it */
    FGC_CHECK = 2,
    FGC_PAIRED = 4, /* of combinations of pairs: rows hold pairs, too; else doubles */
    FGC_ROUNDED = 8, /* out holds doubles; else pairs */
    FGC_CHOSEN = 16 /* of fgc_decode_objects */
};

/* What follows is split over threads where it takes long enough: see fgc_pool_set. What is written and
 * returned does not depend on their number. */

/* One combination of the rows' first `extent` elements (for FGC_PACKED an even number): see
 * fgc_combine_part_double. */
#define FGC_COMBINE(kind, read, real)                                                              \
    int fgc_combine_##kind(fgc_mode mode, const uintptr_t *rows, const double *coef,               \
                           int64_t count, int64_t extent, int64_t in_len, int64_t out_len,         \
                           int flags, real *out);
FGC_KINDS(FGC_COMBINE)
#undef FGC_COMBINE
int fgc_combine_pairs(const uintptr_t *rows, const double *coef, int64_t count, int64_t extent,
                      int64_t in_len, int64_t out_len, int flags, double *out);

/* The same of rows numbers[0 .. count-1] of a table. Those whose coefficient is zero are not read.
 * FGC_NOT_FINITE: as 1 above. */
#define FGC_COMBINE_CHOSEN(kind, read, real)                                                       \
    fgc_status fgc_combine_chosen_##kind(fgc_mode mode, const uintptr_t *table,                    \
                                         const int64_t *numbers, const double *coef,               \
                                         int64_t extent, int64_t in_len, int64_t out_len,          \
                                         int flags, real *out, int64_t count);
FGC_KINDS(FGC_COMBINE_CHOSEN)
#undef FGC_COMBINE_CHOSEN

/* An array object, as NumPy has promised compiled code to lay it out, of CPython with one lock for all. */
typedef struct {
    intptr_t references;
    const void *type;
    const char *data;
    int dimensions;
    const intptr_t *shape, *strides;
    const void *base, *dtype;
    int flags;
} fgc_array;

/* Combinations of rows that are not known to be aligned, nor to lie apart from the output. */
typedef struct {
    fgc_mode mode;
    int flags;
    const double *coef;
    int64_t stride; /* bytes from one row to the next; 0: they lie anywhere */
    int objects;    /* whether addresses are those of Python's objects */
    const int64_t *numbers; /* which rows; NULL: the first ones */
    int64_t extent, in_len, out_len;
} fgc_apart;

/* The same of rows whose first is at `rows`, or whose addresses are, of uintptr_t, if stride is 0. If one
 * is not aligned, or shares memory with `out`, FGC_MISPLACED is returned, and nothing written; as where
 * one of the objects is not a contiguous vector of the first one's type, dtype and length. */
#define FGC_COMBINE_APART(kind, read, real)                                                        \
    fgc_status fgc_combine_apart_##kind(const fgc_apart *plan, const void *rows, real *out,        \
                                        int64_t count);
FGC_KINDS(FGC_COMBINE_APART)
#undef FGC_COMBINE_APART

/* Adds coef[at] times one such row to `out`, or writes it there without FGC_ACCUMULATE in `flags`, and
 * weight[at] times the sum of its squares to *energy. FGC_MISPLACED, or FGC_OK. */
#define FGC_ADD_APART(kind, read, real)                                                            \
    fgc_status fgc_add_apart_##kind(const fgc_apart *plan, const double *weight, double *energy,   \
                                    real *out, const void *row, int64_t at, int flags);
FGC_KINDS(FGC_ADD_APART)
#undef FGC_ADD_APART

/* The same combination as the first in one pass with the sum over rows of weight[r] times the row's
 * squares, which it returns. Not for FGC_REAL_PART. */
#define FGC_ENCODE(kind, read, real)                                                               \
    double fgc_encode_##kind(fgc_mode mode, const uintptr_t *rows, const double *coef,             \
                             const double *weight, int64_t count, int64_t extent, int64_t in_len,  \
                             int64_t out_len, int flags, real *out);
FGC_KINDS(FGC_ENCODE)
#undef FGC_ENCODE

/* What the reals of rows are. */
typedef enum { FGC_FLOAT, FGC_DOUBLE, FGC_HALF, FGC_BFLOAT } fgc_kind;

/* Messages of a round as they come. The caller's, who sets heard[] to 0, lacking[] to what each block
 * needs, and state[] to 0 and what blocks that have enough must weigh. */
typedef struct {
    int64_t messages, length; /* numbers are below; elements of a row that are read */
    fgc_kind kind;
    int check;                    /* whether rows are read, for their norms and what is not finite */
    const int64_t *block;         /* of each message */
    const int64_t *weight;        /* of each block */
    int64_t *lacking, *state;     /* of each block; messages taken, and what is lacking in weight */
    unsigned char *heard;         /* of each message, whether it was taken */
    int64_t *numbers;             /* in order of arrival, as of the next: which message, */
    double *squares;              /* its squared norm, NaN if it was not read, */
    double *energies;             /* its energy, NaN if that is not known, */
    uintptr_t *addresses;         /* and where it lies */
} fgc_arrivals;

/* Takes a message. FGC_OK: those taken suffice; FGC_TOO_FEW: they do not; else it was not taken:
 * FGC_OUT_OF_RANGE, FGC_DUPLICATE, FGC_NOT_FINITE. */
fgc_status fgc_arrive(const fgc_arrivals *a, int64_t number, const void *row, double energy);

/* When the messages of a round suffice. */
typedef enum {
    FGC_BLOCKS, /* so many of each block, whichever they are */
    FGC_CELLS,  /* of cells so many that they weigh enough */
    FGC_TILING, /* intervals, as edges between their ends, that connect 0 and k */
    FGC_EDGES,  /* edges of a graph all of whose components have a cycle of odd length, or sides of
                 * as many vertices */
    FGC_SPAN    /* rows that span: those can be spared that did not come */
} fgc_rule;

/* What workers send in a round. Worker i's messages are first[i] .. first[i+1]-1 and sent in this
 * order, m after share[m] of its work; `share` ascends in (0, 1]. */
typedef struct {
    fgc_rule kind;
    int64_t workers, groups;
    const int64_t *first, *loads; /* loads[i]: its computations */
    const double *share;
    const int64_t *group, *other; /* block, or cell, or start of the interval or edge; its end */
    const int64_t *need;          /* messages needed of each block; weight of each cell */
    int64_t total;                /* FGC_CELLS: weight needed; FGC_TILING: k; FGC_EDGES: vertices */
    int64_t wait;                 /* all messages of so many workers suffice in any case; 0: not */
    int64_t width;                /* FGC_SPAN: numbers of each message, spare[m width .. ]. Messages */
    const double *spare;          /* can be spared if, of these, the first are a combination of the
                                   * others' columns. These are orthonormal over all messages; the
                                   * largest of the first is 1. */
} fgc_completion_plan;

/* How late workers are in a round, and how long they work: of worker i, with h exponential of mean 1,
 *     delay = shift[i] + scale[i] h, or shift[i] + scale[i] exp(power[i] h) where power[i] > 0,
 * or what is given; it begins onset * delay after it is free and needs load[i] delay + work[i] seconds.
 * Both are multiplied by the same random number between 1 and 1 + 2^-40: what is simultaneous comes
 * in random order. The arrays hold each worker's number `repeats` times over. */
typedef struct {
    int64_t workers, repeats;
    uint64_t key;        /* of the random numbers */
    const double *given; /* NULL, or the delays of the rounds asked for */
    const double *shift, *scale, *power, *load, *work;
    double onset;
    int powers; /* whether any power[i] > 0 */
} fgc_delays;

/* All that there is at each SIMD level. */
#define FGC_KERNEL(type, name, parameters, arguments) type fgc_##name parameters;
#define FGC_SUM(name, kind, real, parameters, vectors, numbers, cost)                              \
    double fgc_##name##_part_##kind(void *const *vector, const double *by, int64_t len);           \
    double fgc_##name##_##kind parameters;
#include "kernels.def"

/* These declarations as text, "type name(parameters)", in the end NULL. */
extern const char *const fgc_declared[];

/* Of all rounds: see fgc_draw_part. */
void fgc_draw(const fgc_delays *delays, int64_t first, int64_t rounds, double *wait, double *whole);

/* Of all rounds: see fgc_completion_part. Split over threads, if `interrupted`. */
fgc_status fgc_completion(const fgc_completion_plan *plan, const double *delay, const double *work,
                          double *late, int64_t rounds, double receive, double overhead,
                          int interrupted, double *time, int64_t *messages, int64_t *workers,
                          int64_t *computations);

/* Messages that are each the sum over one cell of the partitions; distinct cells that weigh `need` suffice.
 * What came is multiplied by `whole` over its weight, if that is not 0. */
typedef struct {
    int64_t messages, cells;
    const int64_t *cell;   /* of each message */
    const int64_t *weight; /* of each cell */
    int64_t need;
    double whole;
} fgc_cells;

/* Messages that are each the sum over an interval, as edges between the points where intervals end:
 * point p's are edge first[p] .. first[p+1]-1, by number of message, and each is there twice, once at
 * either end. The whole goes from point 0 to the last one. */
typedef struct {
    int64_t messages, points;
    const int64_t *first, *point, *other, *message; /* of each edge: its two ends, and its message */
} fgc_tiling;

/* Of the first message of each cell 1, or what it is multiplied by, and of others 0. `work`: bytes, one
 * for each message and cell. Returns FGC_OK, FGC_OUT_OF_RANGE, FGC_DUPLICATE or FGC_TOO_FEW. */
fgc_status fgc_cells_vector(const fgc_cells *of, const int64_t *survivors, double *out, void *work,
                            int64_t f);

/* The fewest intervals that add up to the whole; where none do, the fewest of which some are subtracted:
 * 1, or -1, and of others 0. Of equally few, those found first: points in the order in which they are
 * reached, edges in theirs. `work`: so many int64_t as there are messages and, twice, points. Returns as
 * the above. */
fgc_status fgc_tiling_vector(const fgc_tiling *of, const int64_t *survivors, double *out,
                             void *work, int64_t f);

/* Messages that are each the sum of two blocks: edges of a graph whose vertices are the blocks. */
typedef struct {
    int64_t messages, vertices;
    const int64_t *ends;  /* two of each message */
    const double *weight; /* of each vertex, positive */
    int64_t need;
} fgc_edges;

/* Values whose sums at vertices are as near to 1 as can be: weights times squares of what they lack add up
 * to the least. Of all such vectors a short one: the sum over edges of value^2 times the weight of both
 * ends is the least, to a part in a thousand or so, or what some steps towards it come to. `work`: 8 int64_t
 * or double for each message, 11 for each vertex, and 3 more. FGC_TOO_FEW: sums are not 1, and fewer
 * messages than `need` came. Else returns as the above. */
fgc_status fgc_edges_vector(const fgc_edges *of, const int64_t *survivors, double *out, void *work,
                            int64_t f);

/* Rows of a 2-D array, whose lines are contiguous, and the vector that they are combined to. */
typedef struct {
    const void *rows, *out; /* dtypes */
    fgc_mode mode;
    int doubles;    /* whether reals are doubles, and not floats */
    int64_t bytes;  /* of an element of rows */
    int64_t reals;  /* of an element, as `mode` takes rows and output */
    int64_t padded; /* 1: messages are of pairs, and so one longer than gradients of odd length; or 0 */
} fgc_dtypes;

/* Array objects that are taken as they are. What is none of them is FGC_MISPLACED. */
typedef struct {
    const void *type; /* of NumPy's arrays */
    const fgc_dtypes *dtypes;
    int64_t count;
} fgc_known;

/* Decodes array objects: never written, so that threads may share it. */
typedef struct {
    const fgc_known *known;
    const void *numbers, *vectors; /* dtypes of survivors, int64, and of decoding vectors */
    int64_t messages, reals;       /* of a round; doubles of a coefficient, 1 or 2 */
    int64_t work;                  /* bytes of work space */
    fgc_rule rule;                 /* FGC_BLOCKS, FGC_CELLS, FGC_TILING or FGC_EDGES, */
    const void *plan;              /* and an fgc_cyclic, fgc_cells, fgc_tiling or fgc_edges */
    fgc_method method;             /* of an fgc_cyclic, as the following: */
    double longest[2];             /* as in fgc_decoding_vector, of floats and of doubles */
    int64_t factors;               /* so many survivors, and as many others, are left to transforms */
} fgc_decoder;

/* The vector for the survivors in an array object, into another, and the combination of messages by it.
 * With FGC_CHOSEN `messages` has a row for each message of a round, else for each survivor. Nothing is
 * written unless FGC_OK or FGC_NOT_FINITE is returned; any other status is no more than a reason to do
 * it step by step: FGC_MISPLACED, if an object is not the array that it is to be, contiguous and
 * aligned, or the output lies in a row, or the vector is left to transforms. */
fgc_status fgc_vector_of_object(const fgc_decoder *of, uintptr_t out, uintptr_t survivors);
fgc_status fgc_decode_objects(const fgc_decoder *of, uintptr_t messages, uintptr_t out, int flags,
                              uintptr_t survivors);

/* Encodes array objects, likewise: `partials` has `count` rows. */
typedef struct {
    const fgc_known *known;
    const double *coef;
    int64_t count;
} fgc_encoder;
fgc_status fgc_encode_objects(const fgc_encoder *of, uintptr_t partials, uintptr_t out);

/* Nanoseconds: what `least` and `spin` are at first. */
enum { FGC_LEAST = 8000, FGC_SPIN = 50000 };

/* Work of `least` nanoseconds or more, by an estimate, is split over so many threads, the caller's
 * included (1 at first; at most 256), as fgc_decoding_vectors and fgc_completion are. After it they look
 * out for more during `spin` nanoseconds, and then sleep. With `least` 0 all that has parts is split, for
 * tests. Numbers below zero, and no threads, change nothing. */
void fgc_pool_set(int threads, int64_t spin, int64_t least);

/* So far: work that other threads were called to, and work of which they did a part. */
void fgc_pool_counts(int64_t *called, int64_t *shared);

/* What a master and its worker processes tell each other in shared memory, all zero at first and the
 * caller's: lines of 64 bytes, in each of which 8 numbers. News are where their workers alone can write, and
 * so may say anything.
 *
 * newest   the number of the newest round, and a word that changes with each order
 * orders   of each worker two lines: how many it was given, and as which of its births it is to live;
 *          then the last two orders, number k at 4 (k mod 2): round, buffer, first message, and the bits
 *          of a delay in seconds. A third is given once it is known that the first was read.
 * wanted   how many news the master sleeps for; below 1: it does not sleep
 * news     of each worker the address of one line, how many it told; then the last `capacity`, number k - 1 at
 *          4 ((k - 1) mod capacity): a time, round, message, and the bits of its energy. It never has
 *          more in store than that.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. */
typedef struct {
    int64_t workers, capacity;
    int64_t *newest, *orders; /* written by the master, */
    int64_t *wanted;          /* and by the workers */
    uintptr_t *news;
} fgc_rings;

typedef struct {
    int64_t time, worker, round, index;
    double energy;
} fgc_news;

/* Give an order of this round to each of these workers, and wake them. */
void fgc_rings_hand(const fgc_rings *r, const int64_t *workers, const int64_t *first,
                    const double *delay, int64_t round, int64_t buffer, int64_t count);

/* Have a worker live as this birth only: any other ends. */
void fgc_rings_admit(const fgc_rings *r, int64_t worker, int64_t birth);

/* Sleep until a worker has been given other than `seen` orders, at most so long, or until a signal comes;
 * how many it was given, or -1 if it is to end. */
int64_t fgc_rings_wait(const fgc_rings *r, int64_t worker, int64_t birth, int64_t seen,
                       double seconds);

/* Tell of a message, or of a round that was left; a byte is written to the open file `bell` if the master
 * is to wake. */
void fgc_rings_tell(const fgc_rings *r, int bell, int64_t worker, int64_t round, int64_t index,
                    double energy);

/* The news of all workers in order of their times, none of which is still to come, at most so many; how many.
 * taken[i]: those that were taken of worker i so far. One that claims more than `capacity` at a time or for
 * each of its orders, or fewer than before, lies: in their place there is one of message FGC_NONSENSE, and no
 * more of this worker are taken while taken[i] is below 0, where it is -1 less those that were. */
enum { FGC_NONSENSE = -2 };
int64_t fgc_rings_take(const fgc_rings *r, int64_t *taken, fgc_news *out, int64_t most);

/* The same for a master that sleeps next, if there are none, until the bell rings: after so many of the
 * newest round, or one of another. */
int64_t fgc_rings_want(const fgc_rings *r, int64_t *taken, fgc_news *out, int64_t most,
                       int64_t wanted);

/* Where the messages of workers that send one each lie, and who takes them. */
typedef struct {
    const fgc_arrivals *arrivals;
    double *when;           /* of each message, in seconds after the round began */
    const uintptr_t *slots; /* where each message lies */
    int64_t least;      /* messages that suffice at least */
    int once;           /* whether the caller looks at messages before there are enough */
    int files, bell;    /* as of fgc_rings_look */
} fgc_intake;

/* The same for a master that has nothing to decide until messages of the newest round suffice: takes them,
 * and sleeps in between, for so many seconds at most. Returns how many news are left to it at `out`: of
 * messages that were not taken. It returns early with none if another of the files can be read, and after
 * a signal. */
int64_t fgc_rings_gather(const fgc_rings *r, int64_t *taken, fgc_news *out, int64_t most,
                         const fgc_intake *into, double start, double seconds);

/* As fgc_rings_take, if of the files of an epoll none can be read but that at which the bell rings; else -1,
 * and nothing is taken. */
int64_t fgc_rings_look(const fgc_rings *r, int64_t *taken, fgc_news *out, int64_t most, int files,
                       int bell);

/* The SIMD level in use, and how to force another: 0 if this build or this processor lacks it. */
const char *fgc_simd(void);
int fgc_simd_select(const char *level);

#ifdef __cplusplus
}
#endif

#endif
