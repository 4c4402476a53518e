/* fastgc: compiled kernels for gradient coding.
 *
 * Contracts shared by every function here:
 *  - nothing is allocated that outlives the call; callers own all memory;
 *  - inputs are never written; `out` must not overlap them;
 *  - functions keep no state between calls, so any number may run at once (fgc_simd_select excepted);
 *  - sizes count elements, not bytes, and are trusted: the Python facade has checked them.
 */
#ifndef FASTGC_H
#define FASTGC_H

#ifndef FGC_CDEF /* cffi reads this file preprocessed, and knows these types */
#include <stdint.h>
#endif

typedef enum {
    FGC_OK = 0,
    FGC_OUT_OF_RANGE, /* a survivor is no worker of the code; *where = its position */
    FGC_DUPLICATE,    /* a survivor is named twice; *where = the second position */
    FGC_TOO_FEW,      /* *where = how many more are needed at least */
    FGC_OVERFLOW,     /* an entry of the vector does not fit a double; *where = its position */
    FGC_NO_MEMORY,
    FGC_NOT_FINITE, /* an input or a result is NaN or Inf, or an order reaches outside */
    FGC_IMPRECISE   /* the vector is written, but longer than it was to be */
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

/* Work space: so many bytes for each worker. */
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
    FGC_CHECK = 2
};

/* Flags of Vandermonde systems. */
enum {
    FGC_COMPLEX = 1,
    FGC_TRANSPOSE = 2,
    FGC_FORCED = 4, /* write results that are not finite, too */
    FGC_CHOOSE = 8  /* of no order: by modulus, for nodes on a ray from 0, or Leja's */
};

/* All that there is at each SIMD level. */
#define FGC_KERNEL(type, name, parameters, arguments) type fgc_##name parameters;
#include "kernels.def"

/* When the messages of a round suffice. */
typedef enum {
    FGC_BLOCKS, /* so many of each block, whichever they are */
    FGC_CELLS,  /* of cells so many that they weigh enough */
    FGC_TILING  /* intervals, as edges between their ends, that connect 0 and k */
} fgc_rule;

/* What workers send in a round. Worker i's messages are first[i] .. first[i+1]-1 and sent in this
 * order, m after share[m] of its work; `share` ascends in (0, 1]. */
typedef struct {
    fgc_rule kind;
    int64_t workers, groups;
    const int64_t *first, *loads; /* loads[i]: its computations */
    const double *share;
    const int64_t *group, *other; /* block, or cell, or start of the interval; its end */
    const int64_t *need;          /* messages needed of each block; weight of each cell */
    int64_t total;                /* FGC_CELLS: weight needed; FGC_TILING: k */
} fgc_completion_plan;

/* Rounds in which worker i begins late[i] + delay[round n + i] seconds after the round's start and
 * needs work[round n + i] seconds for all it does. For each round: its time, and the messages, the workers heard from, and the
 * computations finished when messages suffice. Each message then heard takes the master `receive`
 * seconds, one after the other. Rounds that never end take INFINITY.
 * Unless `interrupted`, workers finish the message that they are at when the next round starts,
 * `overhead` seconds after the end, and late[] is written; else it holds for every round. */
fgc_status fgc_completion(const fgc_completion_plan *plan, const double *delay, const double *work,
                          double *late, int64_t rounds, double receive, double overhead, int interrupted,
                          double *time, int64_t *messages, int64_t *workers,
                          int64_t *computations);

/* The SIMD level in use, and how to force another: 0 if this build or this processor lacks it. */
const char *fgc_simd(void);
int fgc_simd_select(const char *level);

#endif
