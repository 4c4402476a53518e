/* Messages of a round as they come. */
#include <math.h>

#include "fastgc.h"
#include "tally.h"

/* Write a row's projections, and return its sum of squares. */
static double project(const fgc_arrivals *a, const void *row, int64_t at)
{
    double *const out = a->values + at * FGC_SIDE * FGC_SIDE * (1 + a->paired);
    switch (a->kind) {
    case FGC_FLOAT:
        return fgc_project_float(row, a->length, a->left, a->right, a->paired, out);
    case FGC_HALF:
        return fgc_project_half(row, a->length, a->left, a->right, a->paired, out);
    case FGC_BFLOAT:
        return fgc_project_bfloat(row, a->length, a->left, a->right, a->paired, out);
    default:
        return fgc_project_double(row, a->length, a->left, a->right, a->paired, out);
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

fgc_status fgc_arrive_array(const fgc_arrivals *a, int64_t number, uintptr_t object, double energy)
{
    enum { USABLE = 0x101 }; /* NumPy's flags of contiguous and of aligned arrays */
    const fgc_array *const it = (const fgc_array *)(object + (uintptr_t)a->head);
    const int fits = a->head && it->type == a->type && it->dtype == a->dtype && it->dimensions == 1 &&
                     it->shape[0] == a->size && (it->flags & USABLE) == USABLE;
    return fits ? fgc_arrive(a, number, it->data, energy) : FGC_MISPLACED;
}

fgc_status fgc_arrive(const fgc_arrivals *a, int64_t number, const void *row, double energy)
{
    if (number < 0 || number >= a->messages)
        return FGC_OUT_OF_RANGE;
    if (a->heard[number])
        return FGC_DUPLICATE;
    const double square = a->left ? project(a, row, a->state[0]) : NAN;
    if (a->left && !(square < INFINITY) && !finite_doubles(a, row)) /* squares may overflow */
        return FGC_NOT_FINITE;
    const int64_t count = a->state[0]++;
    a->numbers[count] = number;
    a->squares[count] = square;
    a->energies[count] = energy >= 0 ? energy : NAN;
    a->addresses[count] = (uintptr_t)row;
    a->heard[number] = 1;
    return fgc_count(a->block[number], a->weight, a->lacking, a->state + 1) ? FGC_OK : FGC_TOO_FEW;
}
