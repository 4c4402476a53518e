/* Combinations of rows wherever they lie, and decoders that are bound to rows. By addresses alone, a call
 * first checks, if it is told to, that every row is aligned and lies apart from the output. Each call runs
 * without the global interpreter lock, and the caller holds references to all arrays.
 *
 * Rows may be a list of NumPy arrays, whose type, address, dtype, shape and flags C reads by fgc_array: 68
 * vectors of 100 doubles take 2.3 us this way, and 16 us with a buffer for each. The struct is part of
 * NumPy's binary interface, and fastgc/kernels/c/calls.py checks it at import. NumPy's own headers would need
 * full access to Python's objects; the extension uses the limited API, so that one wheel serves all. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"

/* Rows that begin at lowest .. lowest + extent - 1 share memory with the output. One comparison finds them,
 * as numbers are unsigned: for a row below `lowest`, the difference wraps to a large number. */
typedef struct {
    uintptr_t lowest, extent;
    size_t size; /* bytes of a real, a power of two; rows must be aligned to it */
} memory;

static memory memory_of(const fgc_combination *plan, size_t size, uintptr_t out, size_t out_size)
{
    if (!(plan->flags & FGC_APART))
        return (memory){.size = 1}; /* no row is misplaced */
    const size_t row = (size_t)plan->in_len * size * (plan->mode == FGC_REAL_PART ? 2 : 1);
    const size_t made = (size_t)plan->out_len * out_size * (plan->mode == FGC_EXPAND ? 2 : 1);
    return (memory){out - row + 1, row + made - 1, size};
}

static int misplaced(const memory *it, uintptr_t row)
{
    return (row - it->lowest < it->extent) | ((row & (it->size - 1)) != 0);
}

enum { CONTIGUOUS = 1, WRITABLE = 0x501 }; /* NumPy's flags NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_CARRAY */

static const fgc_array *array_at(uintptr_t object, int64_t head)
{
    return (const fgc_array *)(object + (uintptr_t)head);
}

/* Return where an object has its numbers if it is a vector like the first one; otherwise a misplaced
 * address. */
static uintptr_t data_of(const fgc_array *a, const fgc_array *first, const memory *it)
{
    const int like = a->type == first->type && a->dtype == first->dtype && a->dimensions == 1 &&
                     first->dimensions == 1 && a->shape[0] == first->shape[0] && (a->flags & CONTIGUOUS);
    return like ? (uintptr_t)a->data : it->lowest;
}

/* Whether an object is a contiguous vector of the plan's type, dtype and number of elements. */
static int is_vector(const fgc_array *a, const fgc_combination *plan)
{
    return a->type == plan->type && a->dtype == plan->dtype && a->dimensions == 1 &&
           a->shape[0] == plan->elements && (a->flags & CONTIGUOUS);
}

enum { FEW = 96 }; /* rows whose addresses and coefficients lie on the stack */

/* Write where the rows lie. Returns whether any is misplaced, even one whose coefficient is zero. */
static int locate(const fgc_combination *plan, const void *given, const memory *it, int64_t count,
                  uintptr_t *rows)
{
    const memory out = *it; /* local variables: `rows` might else be taken to overlap them */
    const int64_t *const numbers = plan->numbers, stride = plan->stride;
    const uintptr_t *const table = given;
    const int64_t head = plan->flags & FGC_OBJECTS ? plan->head : 0;
    int wrong = 0;
    for (int64_t r = 0; r < count; r++) {
        const int64_t at = numbers ? numbers[r] : r;
        uintptr_t row = stride ? (uintptr_t)given + (uintptr_t)(at * stride) : table[at];
        if (head)
            row = data_of(array_at(row, head), array_at(table[0], head), &out);
        wrong |= misplaced(&out, row);
        rows[r] = row;
    }
    return wrong;
}

/* Return whether a coefficient of one or two doubles is not zero. Its bits tell: comparisons of doubles take
 * three times as long, and take subnormal numbers for 0 where a program has the processor do so. */
static inline int is_used(const double *coef, int64_t step)
{
    uint64_t x, y;
    memcpy(&x, coef, sizeof x);
    memcpy(&y, coef + step - 1, sizeof y);
    return (x | y) << 1 != 0; /* without the sign */
}

static int64_t count_used(const double *coef, int64_t step, int64_t count)
{
    int64_t used = 0;
    for (int64_t r = 0; r < count; r++)
        used += is_used(coef + step * r, step);
    return used;
}

/* Move the sums of squares of the rows that were used to their places; those of others are NaN. The one of the
 * output, which is behind them, ends behind all. */
static void place_squares(const double *coef, int64_t step, int64_t count, int64_t used, double *squares)
{
    squares[count] = squares[used];
    for (int64_t r = count - 1; r >= 0; r--)
        squares[r] = is_used(coef + step * r, step) ? squares[--used] : NAN;
}

/* Keep the rows whose coefficient is not zero, and these coefficients. */
static void keep_used(const double *coef, int64_t step, int64_t count, uintptr_t *rows, double *kept)
{
    int64_t used = 0;
    for (int64_t r = 0; r < count; r++) {
        const double x = coef[step * r], y = coef[step * r + step - 1];
        rows[used] = rows[r];
        kept[step * used] = x;
        kept[step * used + step - 1] = y;
        used += is_used(coef + step * r, step);
    }
}

#define COMBINE(kind, read, real)                                                                            \
    fgc_status fgc_combine_##kind(const fgc_combination *plan, const void *rows, real *out, int64_t count)   \
    {                                                                                                        \
        const memory it = memory_of(plan, sizeof(read), (uintptr_t)out, sizeof(real));                       \
        uintptr_t few_rows[FEW], *chosen = few_rows;                                                         \
        double few[2 * FEW], *kept = few;                                                                    \
        char *work = NULL;                                                                                   \
        if (count > FEW) {                                                                                   \
            work = malloc((size_t)count * (2 * sizeof *kept + sizeof *chosen));                              \
            if (!work)                                                                                       \
                return FGC_NO_MEMORY;                                                                        \
            kept = (double *)work;                                                                           \
            chosen = (uintptr_t *)(kept + 2 * count);                                                        \
        }                                                                                                    \
        fgc_status status = FGC_MISPLACED;                                                                   \
        if (!locate(plan, rows, &it, count, chosen)) {                                                       \
            const int64_t step = plan->mode == FGC_REAL ? 1 : 2;                                             \
            const int64_t used = plan->flags & FGC_USED ? count_used(plan->coef, step, count) : count;       \
            if (used < count)                                                                                \
                keep_used(plan->coef, step, count, chosen, kept);                                            \
            const double *const coef = used < count ? kept : plan->coef;                                     \
            status = fgc_combine_rows_##kind(plan, chosen, coef, used, plan->flags, out, plan->squares);     \
            if (plan->squares && used < count)                                                               \
                place_squares(plan->coef, step, count, used, plan->squares);                                 \
        }                                                                                                    \
        free(work);                                                                                          \
        return status;                                                                                       \
    }
FGC_KINDS(COMBINE)

#define COMBINE_OBJECTS(kind, read, real)                                                                    \
    fgc_status fgc_combine_objects_##kind(const fgc_combination *plan, uintptr_t table, uintptr_t out,       \
                                          int64_t count)                                                     \
    {                                                                                                        \
        const fgc_array *const from = array_at(table, plan->head), *const to = array_at(out, plan->head);    \
        const int listed = plan->flags & FGC_OBJECTS,                                                        \
                  fits = is_vector(to, plan) && (to->flags & WRITABLE) == WRITABLE;                          \
        if (!fits || !(listed || (from->flags & CONTIGUOUS)))                                                \
            return FGC_MISPLACED;                                                                            \
        return fgc_combine_##kind(plan, listed ? (const void *)table : from->data, (real *)to->data, count); \
    }
FGC_KINDS(COMBINE_OBJECTS)

#define ADD(kind, read, real)                                                                                \
    fgc_status fgc_add_##kind(fgc_message *to, uintptr_t row, int64_t at)                                    \
    {                                                                                                        \
        const fgc_combination *const plan = to->plan;                                                        \
        const size_t length = (size_t)plan->in_len * sizeof(read);                                           \
        const memory it = {to->message - length + 1, length + to->size - 1, sizeof(read)};                   \
        const fgc_array *const from = array_at(row, plan->head);                                             \
        const uintptr_t one = !plan->head ? row : is_vector(from, plan) ? (uintptr_t)from->data : it.lowest; \
        if (misplaced(&it, one))                                                                             \
            return FGC_MISPLACED;                                                                            \
        const int step = plan->mode == FGC_REAL ? 1 : 2;                                                     \
        const double *const by = plan->coef + at * step;                                                     \
        double squares[2];                                                                                   \
        if (plan->mode != FGC_EXPAND)                                                                        \
            squares[0] = fgc_accumulate_##kind((const read *)one, to->out, by[0], by[step - 1], step - 1,    \
                                               !to->more, plan->in_len);                                     \
        else if (fgc_combine_rows_##kind(plan, &one, by, 1, to->more, to->out, squares))                     \
            return FGC_NO_MEMORY;                                                                            \
        to->energy += to->weight[at] * squares[0];                                                           \
        to->more = FGC_ACCUMULATE;                                                                           \
        return FGC_OK;                                                                                       \
    }
FGC_KINDS(ADD)

static fgc_status vector_of(const fgc_bound *to, int64_t f)
{
    switch (to->rule) {
    case FGC_BLOCKS:
        return fgc_decoding_vector(to->plan, to->survivors, to->vector, to->where, to->work, to->longest,
                                   to->method, f);
    case FGC_CELLS:
        return fgc_cells_vector(to->plan, to->survivors, to->vector, to->work, f);
    case FGC_TILING:
        return fgc_tiling_vector(to->plan, to->survivors, to->vector, to->work, f);
    default:
        return fgc_edges_vector(to->plan, to->survivors, to->vector, to->work, f);
    }
}

int64_t fgc_take(const fgc_bound *to, uintptr_t object)
{
    const fgc_array *const it = array_at(object, to->head);
    if (it->type != to->type || it->dtype != to->dtype || it->dimensions != 1 || !(it->flags & CONTIGUOUS))
        return -1;
    const int64_t f = it->shape[0];
    if (f < to->least || f > to->capacity)
        return -1;
    memmove(to->survivors, it->data, (size_t)f * sizeof *to->survivors);
    return vector_of(to, f) ? -1 : f;
}

void fgc_take_masks(const fgc_bound *to, const unsigned char *masks, int64_t sets, int64_t reals, double *out,
                    unsigned char *good)
{
    const int64_t n = to->capacity;
    for (int64_t r = 0; r < sets; r++, masks += n, out += n * reals) {
        int64_t f = 0;
        for (int64_t i = 0; i < n; i++)
            if (masks[i])
                to->survivors[f++] = i;
        good[r] = f >= to->least && !vector_of(to, f);
        for (int64_t m = 0; good[r] && m < f; m++)
            memcpy(out + to->survivors[m] * reals, to->vector + m * reals, (size_t)reals * sizeof *out);
    }
}

#define DECODE(kind, read, real)                                                                             \
    fgc_status fgc_decode_##kind(const fgc_bound *to, uintptr_t object)                                      \
    {                                                                                                        \
        const int64_t f = fgc_take(to, object);                                                              \
        return f < 0 ? FGC_MISPLACED : fgc_combine_##kind(to->sum, to->rows, to->out, f);                    \
    }
FGC_KINDS(DECODE)
