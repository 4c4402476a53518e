/* How far to trust what a vector decodes; fastgc/coding/trust.py has what C does not know. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fastgc.h"

/* Sums over the messages that have a coefficient other than 0. */
typedef struct {
    double terms;   /* how many they are */
    double squares; /* of squared coefficients */
    double spread;  /* of these times squared norms: of independent errors, but that copies have the same */
    double aligned; /* of moduli times norms: the norm of their sum if all had one direction */
    double inside;  /* as `spread`, with energies; NaN if one is not known */
    double scatter; /* the squared norms of all partial gradients, as estimated from messages */
    int copied;     /* whether each is one partial gradient, times 1 or -1 */
} sums;

static sums sums_over(const fgc_trust *of, int64_t count, double least)
{
    sums s = {.copied = of->copied};
    double sizes = 0;
    if (of->copies)
        memset(of->work, 0, 2 * (size_t)of->messages * sizeof *of->work);
    for (int64_t i = 0; i < count; i++) {
        const int64_t number = of->numbers[i];
        const double row = of->rows[number];
        const double re = of->vector[of->complex_ ? 2 * i : i], im = of->complex_ ? of->vector[2 * i + 1] : 0;
        if (re == 0 && im == 0)
            continue;
        s.copied &= fabs(row * of->k - 1) < of->same;
        const double norm = of->norms ? of->norms[i] : row;
        const double energy = of->energies ? of->energies[i] + least : NAN, square = re * re + im * im;
        s.terms++;
        s.squares += square;
        s.aligned += sqrt(square * norm);
        if (of->copies) {
            double *const both = of->work + 2 * of->copies[number];
            both[0] += sqrt(square * norm);
            both[1] += sqrt(square * energy);
        } else {
            s.spread += square * norm;
            s.inside += square * energy;
        }
        if (row > 0 && row < INFINITY) {
            s.scatter += (isnan(energy) ? norm : energy) / row;
            sizes++;
        }
    }
    for (int64_t m = 0; of->copies && m < of->messages; m++) {
        s.spread += of->work[2 * m] * of->work[2 * m];
        s.inside += of->work[2 * m + 1] * of->work[2 * m + 1];
    }
    s.scatter = sizes ? s.scatter / sizes : INFINITY;
    return s;
}

static double least_of(double a, double b) { return b < a ? b : a; }

static double most_of(double a, double b) { return b > a ? b : a; }

/* Roundings so far: their expected squared sum, and the sum if all have one direction. */
typedef struct {
    double squared, most;
} walks;

/* Add `count` roundings by a unit, of this mean square, of numbers of this squared size. */
static void walk(walks *w, double unit, double count, double mean, double size)
{
    w->squared += unit * unit * count * mean * size;
    w->most += unit * count * sqrt(size);
}

/* Sum of the squared norms of the partial sums of `added` terms. A message's squared norm is more than its energy
 * if its terms have a part in common, which then grows with the square of their number. Parts of random directions
 * grow with the number. So on average over the sums, these are half, and the common part a third, of what they are
 * in the end. Terms that cancel have no common part: their sums are taken to be random. */
static double partial_sums(double amplified, double inside, double added)
{
    const double common = most_of(amplified - inside, 0) * added / most_of(added - 1, 1);
    const double random = most_of(inside - common / most_of(added, 1), 0);
    return common * (added / 3 + 1) + random * (added / 2 + 1);
}

/* Number of additions that round a term: in its group, and of the groups after it. */
static double sums_of(double terms, double group) { return least_of(terms, terms / group + group / 2); }

/* Number of roundings in sums of float32. One is that of coefficients. The others are those of partial sums in each
 * group, which grow from one term to all. */
static double in_groups(double terms, double group) { return 1 + (least_of(terms, group) + 1) / 2; }

/* Expected square of the rounding errors. Rounding errors add up like a random walk. Those in messages are
 * amplified. The gradient adds one error of the size of a partial sum for each sum (on average a third of the
 * whole, squared, as sums grow), and one for the last rounding. If workers have told energies, encoders built up
 * each message by adding partial gradients one by one. */
static double rounding(const fgc_trust *of, const sums *s, double amplified, double inside, double larger,
                       double aligned)
{
    walks w = {0, 0};
    const double inner = least_of(of->sums, of->each); /* messages may be sums of higher precision */
    walk(&w, inner, of->roundings, 1, larger);
    walk(&w, of->sums, sums_of(s->terms, of->group), 1.0 / 3, 1);
    walk(&w, of->sums, 1, 1, 1);
    if (inner < of->sums)
        walk(&w, of->sums, 1, 1, amplified);
    if (inside >= 0 && !s->copied)
        walk(&w, of->each, of->added, 1.0 / 3, partial_sums(amplified, inside, of->added) / of->added);
    /* Floats are added as floats in groups whose sums are added in float64. */
    if (of->message > of->sums && !of->half) {
        walk(&w, of->message, in_groups(s->terms, of->group), of->mean, amplified);
        if (!s->copied && !(inside >= 0))
            walk(&w, of->message, in_groups(of->added, of->group), of->mean, amplified);
    }
    /* Results of lower precision than the sums: each element is rounded once. */
    if (of->message > of->sums && !s->copied)
        walk(&w, of->message, 1, of->mean, amplified);
    if (of->gradient > of->sums)
        walk(&w, of->gradient, 1, of->mean, 1);
    if (amplified > 0) {
        const double worst = w.most / of->off * aligned / sqrt(amplified);
        w.squared = most_of(w.squared, worst * worst);
    }
    return w.squared + of->partial * of->partial * (larger * of->coded);
}

int fgc_trust_of(const fgc_trust *of, int64_t count, int zero)
{
    const sums s = sums_over(of, count, zero ? 0 : of->least);
    const double size = of->norms ? of->norms[count] : 1, amplified = s.spread / size, inside = s.inside / size;
    const double larger = inside >= 0 ? most_of(amplified, inside) : amplified;
    of->told[1] = larger < INFINITY ? larger : INFINITY;
    if (of->norms && !(size > 0 && isfinite(size + s.spread)))
        /* The sum is zero or cancels, or squares are beyond float64. */
        of->told[1] = zero && !(s.inside > 0) ? 0 : INFINITY;
    else if (larger < INFINITY) {
        of->told[0] = rounding(of, &s, amplified, inside, larger, of->norms ? s.aligned / sqrt(size) : 0);
        of->told[2] =
            of->norms ? (s.squares * of->lost_each + s.terms * of->lost_term + of->lost_once) / size : 0;
        of->told[3] = s.scatter / size;
        return 1;
    }
    return 0;
}

double fgc_deviation(const double *vector, int complex_, const int64_t *numbers, int64_t count,
                     const int64_t *first, const int64_t *held, const double *value, double *out,
                     int64_t partitions)
{
    const int64_t size = complex_ ? 2 * partitions : partitions;
    long double *const total = calloc((size_t)size, sizeof *total), squared = 0;
    if (!total)
        return -1;
    for (int64_t i = 0; i < count; i++) {
        const long double re = vector[complex_ ? 2 * i : i], im = complex_ ? vector[2 * i + 1] : 0;
        const int64_t end = re != 0 || im != 0 ? first[numbers[i] + 1] : 0;
        for (int64_t e = first[numbers[i]]; e < end; e++)
            if (complex_) {
                const long double x = value[2 * e], y = value[2 * e + 1];
                total[2 * held[e]] += re * x - im * y;
                total[2 * held[e] + 1] += re * y + im * x;
            } else {
                total[held[e]] += re * value[e];
            }
    }
    for (int64_t j = 0; j < size; j++) {
        total[j] -= !(complex_ && j % 2);
        squared += total[j] * total[j];
        if (out)
            out[j] = (double)total[j];
    }
    free(total);
    return (double)sqrtl(squared / partitions);
}
