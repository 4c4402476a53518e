/* Combinations of chosen rows, and of unchecked ones. By addresses alone, a call first checks that every
 * unchecked row is aligned and lies apart from the output.
 *
 * Rows may be a list of NumPy arrays. Survivors, messages and output of a whole call may be objects, too:
 * arrays, and tuples of them. C reads type, address, dtype, shape, strides and flags of an array by fgc_array
 * of fastgc.h:
 *
 * - Asking Python takes longer than the arithmetic. 68 vectors of 100 doubles take 2.3 us this way, and
 *   16 us with a buffer for each (cffi's from_buffer), the way for other interpreters. Python takes a
 *   microsecond to look at three arrays, as long as np.matmul takes for 16 short rows.
 * - NumPy's C API has macros for the same fields of the same struct (PyArray_DATA is one). It would need
 *   NumPy's headers at build time, and full access to Python's objects. The extension is made by cffi for
 *   Python's limited API, so that one wheel serves all versions of Python and of NumPy.
 * - The struct is part of NumPy's binary interface, the same in 1.x and 2.x. Nevertheless
 *   fastgc/kernels/c/calls.py checks it at import: it reads an array of known address, shape, strides,
 *   dtype, base and flags by it, and uses buffers instead if anything differs. It also finds how many bytes
 *   of CPython's lie before the struct, and before the items of a tuple.
 *
 * Each call runs without the global interpreter lock, and the caller holds references to all objects.
 */
#include <stdlib.h>
#include <string.h>

#include "fastgc.h"

/* Rows that begin at lowest .. lowest + extent - 1 share memory with the output. One comparison finds them,
 * as numbers are unsigned: for a row below `lowest`, the difference wraps to a large number. */
typedef struct {
    uintptr_t lowest, extent;
    size_t size; /* bytes of a real, a power of two; rows must be aligned to it */
} memory;

static memory memory_of(const fgc_apart *plan, size_t size, uintptr_t out, size_t out_size)
{
    const size_t row = (size_t)plan->in_len * size * (plan->mode == FGC_REAL_PART ? 2 : 1);
    const size_t made = (size_t)plan->out_len * out_size * (plan->mode == FGC_EXPAND ? 2 : 1);
    return (memory){out - row + 1, row + made - 1, size};
}

static int misplaced(const memory *it, uintptr_t row)
{
    return (row - it->lowest < it->extent) | ((row & (it->size - 1)) != 0);
}

enum { CONTIGUOUS = 1 }; /* NumPy's flag NPY_ARRAY_C_CONTIGUOUS */

static const fgc_array *array_at(uintptr_t object, int64_t head)
{
    return (const fgc_array *)(object + (uintptr_t)head);
}

/* Return where an object has its numbers if it is a vector like the first one; otherwise a misplaced
 * address. */
static uintptr_t data_of(const fgc_array *a, const fgc_array *first, const memory *it)
{
    const int like = a->type == first->type && a->dtype == first->dtype && a->dimensions == 1 &&
                     first->dimensions == 1 && a->shape[0] == first->shape[0] &&
                     (a->flags & CONTIGUOUS);
    return like ? (uintptr_t)a->data : it->lowest;
}

enum { FEW = 96 }; /* rows whose addresses and coefficients lie on the stack */

/* Write where the rows lie. Returns whether any is misplaced, even one whose coefficient is zero. */
static int locate(const fgc_apart *plan, const void *given, const memory *it, int64_t count,
                  uintptr_t *rows)
{
    const memory out = *it; /* local variables: `rows` might else be taken to overlap them */
    const int64_t *const numbers = plan->numbers, stride = plan->stride;
    const uintptr_t *const table = given;
    const int64_t head = plan->head;
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

#define COMBINE_APART(kind, read, real)                                                            \
    static fgc_status combine_##kind(const fgc_apart *plan, const void *rows, const memory *it,    \
                                     real *out, int64_t count)                                     \
    {                                                                                              \
        uintptr_t few_rows[FEW], *chosen = few_rows;                                               \
        double few[2 * FEW], *kept = few;                                                          \
        char *work = NULL;                                                                         \
        if (count > FEW) {                                                                         \
            work = malloc((size_t)count * (2 * sizeof *kept + sizeof *chosen));                    \
            if (!work)                                                                             \
                return FGC_NO_MEMORY;                                                              \
            kept = (double *)work;                                                                 \
            chosen = (uintptr_t *)(kept + 2 * count);                                              \
        }                                                                                          \
        fgc_status status = FGC_MISPLACED;                                                         \
        if (!locate(plan, rows, it, count, chosen)) {                                              \
            const int64_t step = plan->mode == FGC_REAL ? 1 : 2;                                   \
            const int64_t used = count_used(plan->coef, step, count);                              \
            if (used < count)                                                                      \
                keep_used(plan->coef, step, count, chosen, kept);                                  \
            const double *const coef = used < count ? kept : plan->coef;                           \
            const int bad = fgc_combine_##kind(plan->mode, chosen, coef, used, plan->extent,       \
                                               plan->in_len, plan->out_len, plan->flags, out);     \
            status = bad ? FGC_NOT_FINITE : FGC_OK;                                                \
        }                                                                                          \
        free(work);                                                                                \
        return status;                                                                             \
    }                                                                                              \
    fgc_status fgc_combine_apart_##kind(const fgc_apart *plan, const void *rows, real *out,        \
                                        int64_t count)                                             \
    {                                                                                              \
        const memory it = memory_of(plan, sizeof(read), (uintptr_t)out, sizeof(real));             \
        return combine_##kind(plan, rows, &it, out, count);                                        \
    }                                                                                              \
    fgc_status fgc_combine_chosen_##kind(fgc_mode mode, const uintptr_t *table,                    \
                                         const int64_t *numbers, const double *coef,               \
                                         int64_t extent, int64_t in_len, int64_t out_len,          \
                                         int flags, real *out, int64_t count)                      \
    {                                                                                              \
        const fgc_apart plan = {.mode = mode, .flags = flags, .coef = coef, .numbers = numbers,    \
                                .extent = extent, .in_len = in_len, .out_len = out_len};           \
        const memory none = {.size = 1}; /* the rows are well placed */                            \
        return combine_##kind(&plan, table, &none, out, count);                                    \
    }
FGC_KINDS(COMBINE_APART)

#define ADD_APART(kind, read, real)                                                                \
    fgc_status fgc_add_apart_##kind(const fgc_apart *plan, const double *weight, double *energy,   \
                                    real *out, const void *row, int64_t at, int flags)             \
    {                                                                                              \
        const memory it = memory_of(plan, sizeof(read), (uintptr_t)out, sizeof(real));             \
        const uintptr_t one = (uintptr_t)row;                                                      \
        if (misplaced(&it, one))                                                                   \
            return FGC_MISPLACED;                                                                  \
        *energy += fgc_encode_##kind(plan->mode, &one,                                             \
                                     plan->coef + at * (plan->mode == FGC_REAL ? 1 : 2),           \
                                     weight + at, 1, plan->extent, plan->in_len, plan->out_len,    \
                                     flags, out);                                                  \
        return FGC_OK;                                                                             \
    }
FGC_KINDS(ADD_APART)

enum { CONTIGUOUS_ALIGNED = CONTIGUOUS | 0x100, WRITEABLE = 0x400 };

/* Return whether an object is a vector of this dtype that has all of these flags. */
static int is_vector(const fgc_array *a, const void *type, const void *dtype, int flags)
{
    return a->type == type && a->dtype == dtype && a->dimensions == 1 && (a->flags & flags) == flags;
}

/* The rows of an object, as fgc_apart reads them. */
typedef struct {
    const void *at, *dtype;
    int64_t count, length, stride, head;
    int64_t step; /* bytes from one element of an array's row to the next; locate() looks at vectors */
} table;

/* Find the rows. Returns 0 if there are none: among others if an array's rows have a stride of 0, by which
 * fgc_apart means a list of addresses. */
static int find_rows(const fgc_known *known, uintptr_t object, table *rows)
{
    const fgc_array *const a = array_at(object, known->head);
    if (a->type == known->type && a->dimensions == 2 && a->strides[0] != 0) {
        *rows = (table){a->data, a->dtype, a->shape[0], a->shape[1], a->strides[0], 0, a->strides[1]};
        return 1;
    }
    const intptr_t count = a->type == known->tuple ? ((const intptr_t *)a)[1] : 0;
    if (count < 1)
        return 0;
    const uintptr_t *const items = (const uintptr_t *)(object + (uintptr_t)known->items);
    const fgc_array *const first = array_at(items[0], known->head);
    if (first->type != known->type || first->dimensions != 1)
        return 0;
    *rows = (table){items, first->dtype, count, first->shape[0], 0, known->head, 0};
    return 1;
}

/* Find the rows of an object, and return how to combine them to this output. NULL if a dtype is not known, or
 * if rows or output do not lie as they must. */
static const fgc_dtypes *dtypes_of(const fgc_known *known, uintptr_t object, const fgc_array *out,
                                   table *rows)
{
    if (!find_rows(known, object, rows))
        return NULL;
    for (int64_t i = 0; i < known->count; i++) {
        const fgc_dtypes *const s = known->dtypes + i;
        if (rows->dtype == s->rows)
            return (rows->head || rows->length == 1 || rows->step == s->bytes) &&
                           is_vector(out, known->type, s->out, CONTIGUOUS_ALIGNED | WRITEABLE)
                       ? s
                       : NULL;
    }
    return NULL;
}

/* Return the elements of a message for a gradient of so many; -1, which no message has, for none. */
static int64_t message_of(const fgc_dtypes *s, int64_t gradient)
{
    return gradient > 0 ? gradient + (s->padded & gradient) : -1;
}

static fgc_status combine_objects(const fgc_dtypes *s, const table *rows, const fgc_array *out,
                                  const double *coef, const int64_t *numbers, int64_t count,
                                  int flags)
{
    const int64_t in_len = rows->length * s->reals, out_len = out->shape[0] * s->reals;
    const int64_t longer = in_len > out_len ? in_len : out_len;
    const fgc_apart plan = {.mode = s->mode, .flags = flags, .coef = coef,
                            .stride = rows->stride, .head = rows->head, .numbers = numbers,
                            .extent = s->mode == FGC_PACKED ? longer + (longer & 1) : in_len,
                            .in_len = in_len, .out_len = out_len};
    return s->doubles ? fgc_combine_apart_double(&plan, rows->at, (double *)out->data, count)
                      : fgc_combine_apart_float(&plan, rows->at, (float *)out->data, count);
}

/* Memory to compute a vector in: `few`, on the stack, if that is enough. */
typedef struct {
    int64_t *survivors, *theirs; /* as given, and as the plan numbers them */
    double *vector;
    void *work;
    char *whole; /* allocated memory, which the caller must free; or NULL */
    double few[1024];
} room;

static fgc_status vector_by(const fgc_decoder *of, const room *in, int64_t f, double longest)
{
    const int64_t fewer = f < of->messages - f ? f : of->messages - f;
    int64_t where;
    switch (of->rule) {
    case FGC_BLOCKS:
        return fewer >= of->factors ? FGC_MISPLACED
                                    : fgc_decoding_vector(of->plan, in->theirs, in->vector, &where,
                                                          in->work, longest, of->method, f);
    case FGC_CELLS:
        return fgc_cells_vector(of->plan, in->theirs, in->vector, in->work, f);
    case FGC_TILING:
        return fgc_tiling_vector(of->plan, in->theirs, in->vector, in->work, f);
    case FGC_EDGES:
        return fgc_edges_vector(of->plan, in->theirs, in->vector, in->work, f);
    default:
        return FGC_MISPLACED;
    }
}

static fgc_status vector_of_object(const fgc_decoder *of, const fgc_array *came, int64_t f,
                                   double longest, room *in)
{
    in->whole = NULL;
    if (f > of->messages)
        return FGC_MISPLACED;
    const int64_t m = of->messages, numbers = m * (of->reals + (of->number ? 2 : 1));
    const size_t whole = (size_t)numbers * sizeof *in->vector + (size_t)of->work;
    char *at = (char *)in->few;
    if (whole > sizeof in->few && !(at = in->whole = malloc(whole)))
        return FGC_NO_MEMORY;
    in->survivors = (int64_t *)at;
    in->theirs = in->survivors + (of->number ? m : 0);
    in->vector = (double *)(in->theirs + m);
    in->work = in->vector + of->reals * m;
    /* Copy the survivors: other threads may write to the array meanwhile. */
    memcpy(in->survivors, came->data, (size_t)f * sizeof *in->survivors);
    if (of->number)
        for (int64_t l = 0; l < f; l++) {
            const int64_t number = in->survivors[l]; /* one that does not exist is found to be wrong later */
            in->theirs[l] = (uint64_t)number < (uint64_t)m ? of->number[number] : number;
        }
    return vector_by(of, in, f, longest);
}

fgc_status fgc_vector_of_object(const fgc_decoder *of, uintptr_t out, uintptr_t survivors)
{
    const fgc_array *const came = array_at(survivors, of->known->head);
    const fgc_array *const to = array_at(out, of->known->head);
    const void *const type = of->known->type;
    if (!is_vector(came, type, of->numbers, CONTIGUOUS_ALIGNED) ||
        !is_vector(to, type, of->vectors, CONTIGUOUS_ALIGNED | WRITEABLE))
        return FGC_MISPLACED;
    const int64_t f = came->shape[0];
    if (to->shape[0] != f)
        return FGC_MISPLACED;
    room in;
    const fgc_status status = vector_of_object(of, came, f, of->longest[1], &in);
    if (status == FGC_OK)
        memcpy((char *)to->data, in.vector, (size_t)(f * of->reals) * sizeof *in.vector);
    free(in.whole);
    return status;
}

fgc_status fgc_decode_objects(const fgc_decoder *of, uintptr_t messages, uintptr_t out, int flags,
                              uintptr_t survivors)
{
    const fgc_array *const came = array_at(survivors, of->known->head);
    const fgc_array *const to = array_at(out, of->known->head);
    table rows;
    const fgc_dtypes *const s = dtypes_of(of->known, messages, to, &rows);
    if (!s || !is_vector(came, of->known->type, of->numbers, CONTIGUOUS_ALIGNED))
        return FGC_MISPLACED;
    const int64_t f = came->shape[0], all = flags & FGC_CHOSEN ? of->messages : f;
    if (rows.count != all || rows.length != message_of(s, to->shape[0]))
        return FGC_MISPLACED;
    room in;
    fgc_status status = vector_of_object(of, came, f, of->longest[s->doubles], &in);
    if (status == FGC_OK)
        status = combine_objects(s, &rows, to, in.vector, flags & FGC_CHOSEN ? in.survivors : NULL,
                                 f, flags & FGC_CHECK);
    free(in.whole);
    return status;
}

fgc_status fgc_encode_objects(const fgc_encoder *of, uintptr_t partials, uintptr_t out)
{
    const fgc_array *const to = array_at(out, of->known->head);
    table rows;
    const fgc_dtypes *const s = dtypes_of(of->known, partials, to, &rows);
    if (!s || rows.count != of->count || to->shape[0] != message_of(s, rows.length))
        return FGC_MISPLACED;
    return combine_objects(s, &rows, to, of->coef, NULL, of->count, 0);
}
