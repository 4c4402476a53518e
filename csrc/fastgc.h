/* fastgc: compiled kernels for gradient coding, for programs in C and C++.
 *
 *     cc program.c -I "$(python -c 'import fastgc; print(fastgc.get_include())')" \
 *         "$(python -c 'import fastgc; print(fastgc.get_library())')" -lm -pthread
 *
 * docs/kernels_only.md has a whole program. Every function here keeps these rules:
 *  - nothing is allocated that outlives the call; callers own all memory;
 *  - inputs are never written; `out` must not overlap them;
 *  - functions keep no state between calls except threads (see fgc_pool_set), so any number may run at once
 *    (except fgc_simd_select);
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

/* For each kind of rows: of(kind, the type of its reals in memory, the type they are combined to). */
#define FGC_KINDS(of)                                                                                        \
    of(float, float, float) of(double, double, double) of(half, uint16_t, float) of(bfloat, uint16_t, float)

/* For each type of reals. */
#define FGC_REALS(of) of(float) of(double)

typedef enum {
    FGC_OK = 0,
    FGC_OUT_OF_RANGE, /* a survivor is not a worker of the code; *where = its position */
    FGC_DUPLICATE,    /* a survivor is named twice; *where = the second position */
    FGC_TOO_FEW,      /* *where = at least so many more are needed */
    FGC_OVERFLOW,     /* an entry of the vector does not fit a double; *where = its position */
    FGC_NO_MEMORY,
    FGC_NOT_FINITE, /* an input or a result is NaN or Inf, or an order holds an index out of range */
    FGC_IMPRECISE,  /* the vector is written, but longer than allowed */
    FGC_MISPLACED   /* an output overlaps an input, or an input is not aligned */
} fgc_status;

typedef enum {
    FGC_LOCATOR, /* product over the stragglers, O(f s) */
    FGC_LOOKUP,  /* Algorithm 3: product over the other survivors, O(f^2) */
    FGC_SPREAD   /* locator, or lookup where that has fewer factors. If a block has more survivors than
                    needed, and the 2-norm of its vector is over 1, it is decoded again from the `need`
                    survivors that are spread best, O(f need); the others get 0 */
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

/* The doubles of the widest vector. So many ones follow each sine and cosecant table: full vectors may
 * be read at its end. */
enum { FGC_PAD = 8 };

/* Fill the tables of one block: `sine` and `cosecant` have room for 2 m + FGC_PAD numbers, `phase` for 4
 * m. q is coprime to m. */
void fgc_cyclic_tables(int64_t m, int64_t q, double *sine, double *cosecant, double *phase);

/* Work space: so many bytes for each worker, aligned like doubles. */
enum { FGC_WORK = 25 };

/* out[2l], out[2l+1] = the entry a of survivors[l], such that a_F B_F = 1. FGC_IMPRECISE unless the sum of
 * |a|^2 is at most `longest`. */
fgc_status fgc_decoding_vector(const fgc_cyclic *code, const int64_t *survivors, double *out, int64_t *where,
                               void *work, double longest, fgc_method method, int64_t f);

/* The same for many rounds. masks[r n + i] is 1 if worker i survived round r, else 0. Row r of out becomes
 * the round's vector, with 0 for stragglers. where[r] is 0; or how many more survivors are needed (row r is
 * not written); or -1 if an entry does not fit a double; or -2 if the sum of squares is over `longest`.
 * FGC_SPREAD overwrites masks. */
fgc_status fgc_decoding_vectors(const fgc_cyclic *code, unsigned char *masks, double *out, int64_t *where,
                                double longest, fgc_method method, int64_t rounds);

/* present[i] = 1 for survivors, 0 for the others. */
fgc_status fgc_mark(const fgc_cyclic *code, const int64_t *survivors, unsigned char *present, int64_t *where,
                    int64_t f);

/* The vector from the magnitudes of its entries, size[i] = |a_i| for every worker. fgc_mark has marked the
 * survivors in `present`. */
fgc_status fgc_polar_vector(const fgc_cyclic *code, const int64_t *survivors, const unsigned char *present,
                            const double *size, double *out, int64_t *where, void *work, int64_t f);

/* bits[i / 8] >> i % 8 & 1 = whether i is among the survivors, for i = 0 .. n-1; bits from n on are 0.
 * Returns 0 if the survivors are distinct and within 0 .. n-1; else 1, and the bits mean nothing. */
int fgc_survivor_mask(int64_t n, const int64_t *survivors, uint8_t *bits, int64_t f);

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
    FGC_CHECK = 2,      /* FGC_NOT_FINITE if a written value is NaN or Inf */
    FGC_USED = 4,       /* rows whose coefficient is zero are not read */
    FGC_APART = 8,      /* first check that rows are aligned and share no memory with out */
    FGC_OBJECTS = 16    /* rows are given by the addresses of Python's array objects */
};

/* The following functions are split over threads if they take long enough: see fgc_pool_set. Their
 * results do not depend on the number of threads. */

/* An array object from its type on, as NumPy promises it to compiled code. CPython's own fields lie before,
 * `head` bytes in all, more of them without the global interpreter lock. */
typedef struct {
    const void *type;
    const char *data;
    int dimensions;
    const intptr_t *shape, *strides;
    const void *base, *dtype;
    int flags;
} fgc_array;

/* A combination of rows, which are given with each call, as is where it goes. */
typedef struct {
    fgc_mode mode;
    int flags;
    const double *coef; /* as for fgc_combine_part_double */
    int64_t in_len, out_len;
    const int64_t *numbers;   /* of the rows to combine; NULL: the first ones */
    double *squares;          /* NULL, or where sums of squares go: of each row, NaN if it is not read, and
                             * then of the output */
    int64_t stride;           /* bytes from one row to the next; 0: rows lie anywhere */
    int64_t head;             /* bytes from an array object's address to its fgc_array */
    const void *type, *dtype; /* of outputs that are given as objects, */
    int64_t elements;         /* and how many they have */
} fgc_combination;

/* Combine `count` rows. The first row of a table is at `rows`; if stride is 0, `rows` holds the rows'
 * addresses, of uintptr_t. Returns FGC_NOT_FINITE by FGC_CHECK; or with nothing written, FGC_NO_MEMORY, or
 * FGC_MISPLACED by FGC_APART, which also finds objects that are not contiguous vectors of the first one's
 * type, dtype and length. */
#define FGC_COMBINE(kind, read, real)                                                                        \
    fgc_status fgc_combine_##kind(const fgc_combination *plan, const void *rows, real *out, int64_t count);
FGC_KINDS(FGC_COMBINE)
#undef FGC_COMBINE

/* Do so with what contiguous array objects hold, by their addresses: `table`, unless it is one of FGC_OBJECTS,
 * and `out`. Returns FGC_MISPLACED also if `out` is no writable vector as `plan` says. */
#define FGC_COMBINE(kind, read, real)                                                                        \
    fgc_status fgc_combine_objects_##kind(const fgc_combination *plan, uintptr_t table, uintptr_t out,       \
                                          int64_t count);
FGC_KINDS(FGC_COMBINE)
#undef FGC_COMBINE

/* A message to which rows are added one by one. */
typedef struct {
    const fgc_combination *plan; /* not of FGC_REAL_PART */
    void *out;                   /* reals that the terms are added up in, */
    int more;                    /* and whether any were; else what is there is overwritten */
    const double *weight;        /* of each row's sum of squares in the sum `energy` */
    double energy;
    uintptr_t message, size; /* memory, in bytes, that no row may share */
} fgc_message;

/* Add coef[at] times one row, and weight[at] times its sum of squares, in one pass. `row` is its address, or with
 * `head` that of Python's array object. Returns FGC_MISPLACED if it is no aligned and contiguous vector of the plan's
 * type, dtype and elements, or lies in `message`, or FGC_NO_MEMORY, with nothing written; or FGC_OK. */
#define FGC_ADD(kind, read, real) fgc_status fgc_add_##kind(fgc_message *to, uintptr_t row, int64_t at);
FGC_KINDS(FGC_ADD)
#undef FGC_ADD

/* The type of the reals of rows. */
typedef enum { FGC_FLOAT, FGC_DOUBLE, FGC_HALF, FGC_BFLOAT } fgc_kind;

/* A message has FGC_SIDE^2 projections; FGC_ROW of its elements share some of their random numbers. */
enum { FGC_SIDE = 8, FGC_ROW = 256 };

/* As fgc_project_part. Sums may be rounded otherwise. */
#define FGC_PROJECT(kind, read, real)                                                                        \
    double fgc_project_##kind(const read *x, int64_t len, const double *left, const double *right,           \
                              int paired, double *out);
FGC_KINDS(FGC_PROJECT)
#undef FGC_PROJECT

/* When the messages of a round suffice. */
typedef enum {
    FGC_BLOCKS, /* any `need` messages of each block */
    FGC_CELLS,  /* messages of cells that weigh `total` together */
    FGC_TILING, /* intervals that, as edges between their ends, connect 0 and k */
    FGC_EDGES,  /* edges of a graph such that each component has a cycle of odd length, or two sides with
                 * equally many vertices */
    FGC_SPAN    /* rows that span a target */
} fgc_rule;

/* A vertex in a forest of components: sign = 1 if it is on its parent's side, else -1. Of a root: size counts
 * the component's vertices, more is how many more of them are on the root's side than on the other, and odd
 * says whether the component has a cycle of odd length. All of that holds in one round. */
typedef struct {
    int64_t round, parent, sign, size, more, odd;
} fgc_vertex;

/* The messages of a round until they suffice, by any rule but FGC_SPAN. The caller owns the memory, and sets
 * `round` and vertices[] to 0. */
typedef struct {
    fgc_rule kind;
    int64_t groups, total;        /* total: the weight needed; FGC_TILING: k; FGC_EDGES: vertices */
    const int64_t *group, *other; /* of each message, as in fgc_completion_plan */
    const int64_t *need,
        *weight;          /* messages needed of each block or cell, NULL: 1; and its weight once they came */
    int64_t *lacking;     /* messages that each block or cell lacks */
    fgc_vertex *vertices; /* FGC_TILING, FGC_EDGES: total + 1 */
    int64_t round, due;   /* the number of resets; the weight, or the components, that lack something */
} fgc_tally;

/* Forget all messages. */
void fgc_tally_reset(fgc_tally *t);

/* Count a message, and return whether the messages so far suffice. */
int fgc_tally_add(fgc_tally *t, int64_t message);

/* The messages of a round as they come. The caller owns the memory, and begins with fgc_forget. */
typedef struct {
    int64_t messages, workers, length; /* of the code; elements of a row that are read */
    fgc_kind kind;
    const int64_t *first; /* worker i sends messages first[i] .. first[i+1]-1 */
    int64_t *next;        /* of each worker: the message after the last that came, counted from its first */
    fgc_tally *tally;     /* or NULL */
    int64_t taken;        /* messages */
    unsigned char *heard; /* of each message: whether it was taken */
    int64_t *numbers;     /* in order of arrival, as are the next: the message's number, */
    double *squares;      /* its squared norm, NaN unless rows are read: unless `left` is NULL, */
    double *energies;     /* its energy, NaN if that is not known, */
    uintptr_t *addresses; /* where it lies, */
    double *values;       /* and its projections, by these numbers; rows are read to find NaN, too */
    double *norms;        /* with `values`: its norm, times `unit` */
    const double *left, *right; /* as for fgc_project, and so is this: */
    int paired;
    double unit;
    int64_t head, size;       /* for fgc_arrive_array: as in fgc_combination, or 0; elements of a message, */
    const void *type, *dtype; /* and its type and dtype */
} fgc_arrivals;

/* Forget all messages. */
void fgc_forget(fgc_arrivals *a);

/* Take a message of a worker: its message `index`, or if that is INT64_MIN, the next. Returns FGC_TOO_FEW if the
 * messages taken do not suffice, and FGC_OK if they do or nobody counts. It is not taken if FGC_OUT_OF_RANGE or
 * FGC_DUPLICATE is returned, or FGC_NOT_FINITE: rows are read, and it is not, or its energy is negative. */
fgc_status fgc_arrive(fgc_arrivals *a, int64_t worker, int64_t index, const void *row, double energy);

/* Take a message that is Python's object at this address, or return FGC_MISPLACED: it is no contiguous vector of
 * the type, dtype and size that are said. */
fgc_status fgc_arrive_array(fgc_arrivals *a, int64_t worker, int64_t index, uintptr_t object, double energy);

/* What a round's messages say of each other; fastgc/coding/verify.py has the mathematics. Numbers are complex,
 * as (re, im) pairs, if the messages' projections are paired. */
typedef struct {
    const fgc_arrivals *came;
    const int64_t *sender;   /* of each message of the code */
    const double *row_norms; /* of its coefficients */
    int64_t workers;
    int coded, real; /* whether no two workers compute the same; whether only real parts are decoded */
    int64_t padding; /* the place of the real by which messages are longer than gradients; 0: none is */
    /* squared errors of a message of norm 1, and of one of energy 1; errors by underflow of a projection, and of
     * the root of an energy; the load; the largest root of an energy, by how much it may exceed that of others,
     * and for one not told, its part of the norm */
    double own, terms, underflow, lost, load, most, spread, untold;
    /* constants of verify.py: LEAST, HUGE, SAFETY, SMALL^2, SEEN, STRETCH, DEPENDENT, DUST, ROUGH */
    double least, huge, safety, small, seen, stretch, dependent, dust, coarse;
    /* written, for each message inspected: its projections, relative to the size of messages; in four rows,
     * its squared rounding error, its largest change, its typical rounding error, and 1 if it claims too much
     * energy, else 0; its sender, and the norm of its coefficients; whether it is ROUGH by its energy, and so
     * much that its errors would spoil checks */
    double *scaled, *notes;
    int64_t *from;
    double *norm;
    unsigned char *rough, *unsure;
    /* what fgc_inspect was given, and found: the size of partial gradients */
    int64_t f, m, entries;
    const int64_t *first, *position;
    const double *coefficient, *error, *sum;
    double size;
} fgc_inspection;

/* What trust is told of a code's messages, and of their format; fastgc/coding/trust.py fills it in. */
typedef struct {
    const double *vector;           /* by which messages are decoded, */
    int complex_;                   /* and whether it is complex, */
    const int64_t *numbers;         /* their numbers, */
    const double *norms, *energies; /* squared norms, that of the gradient after them, and energies; or NULL */
    /* of each message of the code: the squared norm of its row, if that of the gradient is 1, and a number that
     * copies share, whose errors are the same, or NULL; then 2 numbers */
    const double *rows;
    const int64_t *copies;
    int64_t messages;
    double *work;
    int copied; /* whether messages are partial gradients as computed, if rows' norms are 1, up to `same` */
    int half;   /* whether messages are halves */
    double k, same;
    double added;     /* partial gradients in a message */
    double roundings; /* in a message; and those that coded data add to each partial gradient: */
    double coded;
    /* units of roundoff: of messages, of sums over messages, of sums in messages, of gradients, and of partial
     * gradients */
    double message, sums, each, gradient, partial;
    double mean;  /* square of roundings, in squared units */
    double off;   /* the part of the sum of all roundings that they are at least */
    double group; /* terms that are added as floats */
    double least; /* what may be missing in an energy */
    /* squares of what underflow loses, times the squared norm of the vector, times its terms, and once */
    double lost_each, lost_term, lost_once;
    /* written: the expected square of rounding errors, the larger of the messages' squared norms in the sum and of
     * their energies, the square of what underflow lost, and the partial gradients' squared norms; all relative
     * to the gradient's squared norm */
    double *told;
} fgc_trust;

/* Assess what so many messages are decoded to; `zero`: all are 0. Returns 0 if nothing is known but told[1], whose
 * root is both the relative error and the growth. */
int fgc_trust_of(const fgc_trust *of, int64_t count, int zero);

/* out, unless it is NULL, = the combination of the messages of these numbers by a vector, less 1: summed up in
 * extended precision and rounded once. Message m has the coefficients value[e] of the partitions held[e], e =
 * first[m] .. first[m+1]-1. All are pairs if `complex_`. Returns its root mean square; -1: no memory. */
double fgc_deviation(const double *vector, int complex_, const int64_t *numbers, int64_t count,
                     const int64_t *first, const int64_t *held, const double *value, double *out,
                     int64_t partitions);

/* A decoder that is bound to its arrays. */
typedef struct {
    fgc_rule rule;    /* FGC_BLOCKS, FGC_CELLS, FGC_TILING or FGC_EDGES: what `plan` is, */
    const void *plan; /* an fgc_cyclic, fgc_cells, fgc_tiling or fgc_edges */
    int64_t *survivors;
    double *vector;
    int64_t *where;
    void *work;
    double longest;             /* FGC_BLOCKS: as in fgc_decoding_vector, */
    fgc_method method;          /* and so is this */
    int64_t least, capacity;    /* of survivors, */
    const void *type, *dtype;   /* which are copied from arrays like these */
    int64_t head;               /* as in fgc_combination */
    const fgc_combination *sum; /* by the vector, of the survivors' rows, */
    const void *rows;           /* which lie as fgc_combine says */
    void *out;
} fgc_bound;

/* Copy the survivors that a Python object holds, and write their vector. Returns how many there are; or -1 if
 * the object is no contiguous vector of int64, or holds too few or too many, or the vector has a status. */
int64_t fgc_take(const fgc_bound *to, uintptr_t object);

/* Write the vectors of many sets, given by masks of `capacity` flags each. A row of `out` has `reals` numbers
 * for each message, and is 0 before. good[r] = whether set r is large enough, and its vector has no status. */
void fgc_take_masks(const fgc_bound *to, const unsigned char *masks, int64_t sets, int64_t reals, double *out,
                    unsigned char *good);

/* Do so, and combine their rows. Returns the status of fgc_combine, or FGC_MISPLACED where fgc_take fails. */
#define FGC_DECODE(kind, read, real) fgc_status fgc_decode_##kind(const fgc_bound *to, uintptr_t object);
FGC_KINDS(FGC_DECODE)
#undef FGC_DECODE

/* The messages of a round. Worker i sends messages first[i] .. first[i+1]-1 in this order, message m after
 * share[m] of its work; its shares ascend in (0, 1]. */
typedef struct {
    fgc_rule kind;
    int64_t workers, groups;
    const int64_t *first, *loads; /* loads[i]: its computations */
    const double *share;
    const int64_t *group, *other; /* of each message: its block, cell, or the start of its interval
                                   * or edge; and the end of that */
    const int64_t *need;          /* messages needed of each block; weight of each cell */
    int64_t total;                /* FGC_CELLS: weight needed; FGC_TILING: k; FGC_EDGES: vertices */
    int64_t wait;                 /* all messages of so many workers suffice in any case; 0: no limit */
    int64_t width, ways;          /* FGC_SPAN: message m has `ways` rows of `width` numbers, from */
    const double *spare;          /* spare[m ways width] on. A set of messages can be spared if, over its
                                   * rows, the first column is a combination of the others. Over all rows,
                                   * these are orthonormal; the largest of the first numbers is 1. */
    int forwards;                 /* Or a set suffices if the first column is none; rows have norm 1. */
} fgc_completion_plan;

/* How late workers are in a round, and how long they work. For worker i, with h exponential of mean 1,
 *     delay = shift[i] + scale[i] h, or shift[i] + scale[i] exp(power[i] h) if power[i] > 0,
 * or the given delay. It begins onset * delay seconds after it is free, and needs load[i] delay + work[i]
 * seconds. Both are multiplied by the same random number between 1 and 1 + 2^-40, so that simultaneous
 * messages come in random order. The arrays hold the workers' numbers `repeats` times over. */
typedef struct {
    int64_t workers, repeats;
    uint64_t key;        /* of the random numbers */
    int64_t start;       /* the first of the rounds whose delays are given */
    const double *given; /* NULL, or these delays */
    const double *whole; /* NULL, or what workers need in these rounds: nothing is drawn or multiplied then */
    const double *shift, *scale, *power, *load, *work;
    double onset;
    int powers; /* whether any power[i] > 0 */
} fgc_delays;

/* The functions that are compiled once for each SIMD level. */
#define FGC_KERNEL(type, name, parameters, arguments) type fgc_##name parameters;
#define FGC_SUM(name, kind, real, parameters, vectors, numbers, cost)                                        \
    double fgc_##name##_part_##kind(void *const *vector, const double *by, int64_t len);                     \
    double fgc_##name##_##kind parameters;
#include "kernels.def"

/* These declarations as text, "type name(parameters)"; the last is NULL. */
extern const char *const fgc_declared[];

/* All rounds: see fgc_completion_part. Split over threads if `interrupted`. */
fgc_status fgc_completion(const fgc_completion_plan *plan, const fgc_delays *delays, int64_t first,
                          double *late, int64_t rounds, double receive, double overhead, int interrupted,
                          double *time, int64_t *messages, int64_t *workers, int64_t *computations);

/* Messages that are each the sum over one cell of the partitions. Distinct cells that weigh `need` together
 * suffice. If `whole` is not 0, their sum is multiplied by `whole` over their weight. With `inverse`, messages
 * are that sum times a complex number, of which inverse[2 m], inverse[2 m + 1] is the inverse. */
typedef struct {
    int64_t messages, cells;
    const int64_t *cell;   /* of each message */
    const int64_t *weight; /* of each cell */
    int64_t need;
    double whole;
    const double *inverse; /* or NULL */
} fgc_cells;

/* Messages that are each the sum over an interval: edges between the points where intervals end. Point p
 * has edges first[p] .. first[p+1]-1, in order of messages. Each interval is listed twice, once at
 * either end. The whole goes from point 0 to the last point. */
typedef struct {
    int64_t messages, points;
    const int64_t *first, *point, *other, *message; /* of each edge: its two ends, and its message */
} fgc_tiling;

/* out[l] = 1, or the factor by `whole`, for the first message of each cell; 0 for others. With `inverse`,
 * out[2l], out[2l+1] = that times the inverse. `work`: one byte for each message and each cell. Returns FGC_OK, FGC_OUT_OF_RANGE, FGC_DUPLICATE or FGC_TOO_FEW. */
fgc_status fgc_cells_vector(const fgc_cells *of, const int64_t *survivors, double *out, void *work, int64_t f);

/* Find the fewest intervals that add up to the whole; if none do, the fewest of which some are
 * subtracted. Entries are 1 for intervals that are added, -1 for those subtracted, else 0. Of equally
 * few intervals, the first found are taken: points in the order in which they are reached, edges in
 * theirs. `work`: one int64_t for each message, two for each point. Returns the same as
 * fgc_cells_vector. */
fgc_status fgc_tiling_vector(const fgc_tiling *of, const int64_t *survivors, double *out, void *work,
                             int64_t f);

/* Messages that are each the sum of two blocks: edges of a graph whose vertices are the blocks. */
typedef struct {
    int64_t messages, vertices;
    const int64_t *ends;  /* two for each message */
    const double *weight; /* of each vertex, positive */
    int64_t need;
} fgc_edges;

/* Find values of edges whose sums at vertices are as near to 1 as possible: the sum over vertices of
 * weight times (1 - sum)^2 is least. Of all such vectors, a short one is taken: the sum over edges of
 * value^2 times the weight of both ends is least to about a part in a thousand, or after some steps
 * towards it. `work`: 8 int64_t or double for each message, 11 for each vertex, and 3 more. Returns
 * FGC_TOO_FEW if sums are not 1 and fewer messages than `need` came; else the same as fgc_cells_vector. */
fgc_status fgc_edges_vector(const fgc_edges *of, const int64_t *survivors, double *out, void *work, int64_t f);

/* The initial values of `least` and `spin`, in nanoseconds. */
enum { FGC_LEAST = 8000, FGC_SPIN = 50000 };

/* Set the number of threads, the caller's included (1 at first; at most 256). Work that is estimated to
 * take `least` nanoseconds or more is split over them, also that of fgc_decoding_vectors and
 * fgc_completion. After it threads spin for `spin` nanoseconds, looking for more work, and then sleep.
 * With `least` 0 everything that has parts is split, for tests. Numbers below zero, and 0 threads,
 * change nothing. */
void fgc_pool_set(int threads, int64_t spin, int64_t least);

/* Count the jobs so far that other threads were called to, and those of which they did a part. */
void fgc_pool_counts(int64_t *called, int64_t *shared);

/* Return the SIMD level in use; force another level: returns 0 if this build or this processor lacks it. */
const char *fgc_simd(void);
int fgc_simd_select(const char *level);

#ifdef __cplusplus
}
#endif

#endif
