/* Messages of a round as they come. */
#include <math.h>

#include "tally.h"
#include "values.h"

/* Sums of squares above it lost nothing by underflow. */
static const double SMALL = 1e-280;

/* Write a row's projections and norm, and return its sum of squares. If that may have lost digits, the norm comes
 * by way of the largest element. */
#define READ(kind, read, real)                                                                               \
    static double read_##kind(const fgc_arrivals *a, const read *x, int64_t at)                              \
    {                                                                                                        \
        double *const out = a->values + at * FGC_SIDE * FGC_SIDE * (1 + a->paired);                          \
        const double square = fgc_project_##kind(x, a->length, a->left, a->right, a->paired, out);           \
        double largest = 0, sum = 0;                                                                         \
        int exponent = 0;                                                                                    \
        a->norms[at] = sqrt(square) * a->unit;                                                               \
        if (square > SMALL && square < INFINITY)                                                             \
            return square;                                                                                   \
        for (int64_t i = 0; i < a->length; i++)                                                              \
            largest = fmax(largest, fabs((double)value_##kind(x[i])));                                       \
        frexp(largest, &exponent);                                                                           \
        for (int64_t i = 0; i < a->length; i++) {                                                            \
            const double v = ldexp(value_##kind(x[i]), -exponent);                                           \
            sum += v * v;                                                                                    \
        }                                                                                                    \
        a->norms[at] = ldexp(sqrt(sum) * a->unit, exponent);                                                 \
        return square;                                                                                       \
    }
FGC_KINDS(READ)

static double read_row(const fgc_arrivals *a, const void *row, int64_t at)
{
    switch (a->kind) {
    case FGC_FLOAT:
        return read_float(a, row, at);
    case FGC_HALF:
        return read_half(a, row, at);
    case FGC_BFLOAT:
        return read_bfloat(a, row, at);
    default:
        return read_double(a, row, at);
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

void fgc_tally_reset(fgc_tally *t) { tally_reset(t); }

int fgc_tally_add(fgc_tally *t, int64_t message) { return tally_add(t, message); }

void fgc_forget(fgc_arrivals *a)
{
    a->taken = 0;
    memset(a->heard, 0, (size_t)a->messages);
    memset(a->next, 0, (size_t)a->workers * sizeof *a->next);
    if (a->tally)
        tally_reset(a->tally);
}

fgc_status fgc_arrive_array(fgc_arrivals *a, int64_t worker, int64_t index, uintptr_t object, double energy)
{
    enum { USABLE = 0x101 }; /* NumPy's flags of contiguous and of aligned arrays */
    const fgc_array *const it = (const fgc_array *)(object + (uintptr_t)a->head);
    const int fits = a->head && it->type == a->type && it->dtype == a->dtype && it->dimensions == 1 &&
                     it->shape[0] == a->size && (it->flags & USABLE) == USABLE;
    return fits ? fgc_arrive(a, worker, index, it->data, energy) : FGC_MISPLACED;
}

fgc_status fgc_arrive(fgc_arrivals *a, int64_t worker, int64_t index, const void *row, double energy)
{
    if (worker < 0 || worker >= a->workers)
        return FGC_OUT_OF_RANGE;
    const int64_t first = a->first[worker], at = index == INT64_MIN ? a->next[worker] : index;
    if (at < 0 || at >= a->first[worker + 1] - first)
        return FGC_OUT_OF_RANGE;
    const int64_t number = first + at;
    if (a->heard[number])
        return FGC_DUPLICATE;
    if (a->left && energy < 0)
        return FGC_NOT_FINITE;
    const double square = a->left ? read_row(a, row, a->taken) : NAN;
    if (a->left && !(square < INFINITY) && !finite_doubles(a, row)) /* squares may overflow */
        return FGC_NOT_FINITE;
    const int64_t count = a->taken++;
    a->numbers[count] = number;
    a->squares[count] = square;
    a->energies[count] = energy >= 0 ? energy : NAN;
    a->addresses[count] = (uintptr_t)row;
    a->heard[number] = 1;
    a->next[worker] = at + 1;
    return !a->tally || tally_add(a->tally, number) ? FGC_OK : FGC_TOO_FEW;
}
