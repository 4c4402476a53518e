/* When the messages of a simulated round suffice.
 *
 * Every backend and level rounds alike, so that their whole numbers agree even where times tie: this
 * file is compiled without fused multiply-adds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "vector.h"

/* Between which times the rounds before were ready. Rounds are much alike, so that few of the next
 * one's messages come between these, and all that is sought is among them. */
typedef struct {
    double low, high;    /* of the last EPOCH rounds that were whole; at first no time at all */
    double least, most;  /* of those since */
    int64_t rounds;
} window;

enum { EPOCH = 32 };

/* Keys of which the one sought is found by comparing each with each. */
enum { FEW = 32 };

/* Messages of a worker of which it does not pay to skip those that come too late. */
enum { MANY = 8 };

/* key[to] = the earlier, or if serial the later, of key[to] and key[from]. */
typedef struct {
    int64_t to, from, serial;
} step;

typedef struct {
    const fgc_completion_plan *plan;
    int single, straight, many;         /* one message from every worker; messages in order; above MANY */
    double *begin, *load, *sent;        /* of each worker, when it begins, its computations, see below */
    double *arrival;                    /* of each message */
    double *key, *spare;                /* what is selected from, and what lies beyond a pivot */
    double *gathered;                   /* a block's arrivals, or the earliest of each cell */
    int64_t *weight, *spare_weight;     /* FGC_CELLS: of the keys, */
    int64_t heaviest, rank;             /* their sum, and how many suffice, if any so many do, or 0 */
    int64_t *order, *bound;             /* FGC_BLOCKS: the messages by block, block b's from bound[b] */
    int64_t *near;                      /* FGC_TILING: edges inside the window, */
    int64_t *start, *stop;              /* the ends of each message's edge, */
    int64_t *edge, edges;               /* those that remain of the graph, */
    step *step;                         /* and how they come of the others */
    int64_t steps;
    window *windows;                    /* of each block, or one */
    window last;                        /* of when rounds are ready */
    double limit;                       /* what arrives later is taken not to arrive */
    int64_t *parent;                    /* of each point, in a forest of components */
    int64_t *sign, *size, *more, *odd;  /* FGC_EDGES: whether on its side; of roots, see there */
    double *basis;                      /* FGC_SPAN: of the rows that are spared, and one more */
    int64_t held;                       /* rows of it */
    int64_t *heap, *next, waiting;      /* workers by the arrival of their next message */
    uint64_t random;
} fgc_rounds;

static void note(const fgc_rounds *r, window *w, double ready)
{
    if (ready > r->limit) /* it may be sooner: the round is done again */
        return;
    w->least = ready < w->least ? ready : w->least;
    w->most = ready > w->most ? ready : w->most;
    if (++w->rounds == EPOCH)
        *w = (window){w->least, w->most, INFINITY, -INFINITY, 0};
}

/* A key near the one sought, of which `part` of the keys are smaller. At random: no order of arrivals
 * is bad for long. */
static double choose_pivot(fgc_rounds *r, const double *key, int64_t count, double part)
{
    enum { SAMPLE = 8 };
    double sample[SAMPLE];
    const int64_t size = count < 4 * SAMPLE ? 1 : SAMPLE;
    for (int64_t i = 0; i < size; i++) {
        r->random = r->random * 6364136223846793005u + 1442695040888963407u;
        const double x = key[(r->random >> 32) * (uint64_t)count >> 32];
        int64_t at = i;
        for (; at && sample[at - 1] > x; at--)
            sample[at] = sample[at - 1];
        sample[at] = x;
    }
    return sample[(int64_t)(part * (double)size)];
}

/* The smallest t such that the `count` keys up to t weigh `need` > 0, or each 1 if `weight` is NULL;
 * together they weigh `whole`. The arrays are overwritten. Splits without branches, for they would
 * be mispredicted. */
static FGC_INLINE double select_key(fgc_rounds *r, double *key, double *spare, int64_t *weight,
                                    int64_t *spare_weight, int64_t count, int64_t whole,
                                    int64_t need)
{
    if (need > whole)
        return INFINITY;
    for (;;) {
        const double pivot =
            choose_pivot(r, key, count, ((double)need - 0.5) / (double)whole);
        int64_t less = 0, more = 0, below = 0, above = 0;
        for (int64_t j = 0; j < count; j++) {
            const double x = key[j];
            key[less] = x;
            spare[more] = x;
            if (weight) {
                const int64_t w = weight[j];
                weight[less] = w;
                spare_weight[more] = w;
                below += x < pivot ? w : 0;
                above += x > pivot ? w : 0;
            }
            less += x < pivot;
            more += x > pivot;
        }
        if (!weight) {
            below = less;
            above = more;
        }
        if (need <= below) {
            count = less;
            whole = below;
        } else if (need <= whole - above) {
            return pivot;
        } else {
            need -= whole - above;
            count = more;
            whole = above;
            double *const other = key;
            key = spare;
            spare = other;
            int64_t *const other_weight = weight;
            weight = spare_weight;
            spare_weight = other_weight;
        }
    }
}

/* The key of rank `need` > 0 of at most FEW: the least of which so many are not larger. What lies
 * beyond them up to a whole vector is overwritten. */
static double select_few(double *key, int64_t count, int64_t need)
{
    vector found = spread(INFINITY);
    for (int64_t j = count; j < count + LANES; j++)
        key[j] = INFINITY;
    for (int64_t i = 0; i < count; i += LANES) {
        const vector x = load(key + i);
        vector upto = spread(0);
        for (int64_t j = 0; j < count; j++)
            upto += pick(spread(key[j]) <= x, spread(1), spread(0));
        const vector enough = pick(upto >= spread((double)need), x, spread(INFINITY));
        found = pick(enough < found, enough, found);
    }
    double least[LANES];
    store(least, found);
    for (int t = 1; t < LANES; t++)
        least[0] = least[t] < least[0] ? least[t] : least[0];
    return least[0];
}

/* The keys inside the window, one after the other; *before = how many come before it. */
static int64_t gather_near(const double *key, int64_t count, const window *w, double *near,
                           int64_t *before)
{
    const vector low = spread(w->low), high = spread(w->high);
    vector earlier = spread(0);
    int64_t inside = 0, j = 0;
    for (; j + LANES <= count; j += LANES) {
        const vector x = load(key + j);
        const lanes late = x >= low;
        earlier += pick(late, spread(0), spread(1));
        inside += keep(near + inside, late & (x <= high), x);
    }
    double sums[LANES];
    store(sums, earlier);
    *before = 0;
    for (int t = 0; t < LANES; t++)
        *before += (int64_t)sums[t];
    for (; j < count; j++) {
        near[inside] = key[j];
        *before += key[j] < w->low;
        inside += (key[j] >= w->low) & (key[j] <= w->high);
    }
    return inside;
}

/* The key of rank `need` > 0; the keys are kept. */
static double select_rank(fgc_rounds *r, const double *key, int64_t count, int64_t need, window *w)
{
    if (need > count)
        return INFINITY;
    if (count <= FEW) {
        memcpy(r->key, key, (size_t)count * sizeof *key);
        return select_few(r->key, count, need);
    }
    double found;
    int64_t before;
    double *const near = r->spare;
    const int64_t inside = gather_near(key, count, w, near, &before);
    if (before < need && need <= before + inside) {
        found = inside <= FEW ? select_few(near, inside, need - before)
                              : select_key(r, near, r->key, NULL, NULL, inside, inside, need - before);
    } else {
        memcpy(r->key, key, (size_t)count * sizeof *key);
        found = select_key(r, r->key, near, NULL, NULL, count, count, need);
    }
    note(r, w, found);
    return found;
}

static double blocks_ready(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    double ready = 0;
    for (int64_t b = 0; b < plan->groups; b++) {
        const int64_t lo = r->bound[b], count = r->bound[b + 1] - lo;
        const double *key = r->arrival + lo;
        if (!r->straight) {
            for (int64_t j = 0; j < count; j++)
                r->gathered[j] = r->arrival[r->order[lo + j]];
            key = r->gathered;
        }
        int64_t came = 0; /* by when other blocks are ready anyway */
        for (int64_t j = 0; j < count && b > 0; j++)
            came += key[j] <= ready;
        if (came < plan->need[b])
            ready = select_rank(r, key, count, plan->need[b], r->windows + b);
    }
    return ready;
}

static FGC_INLINE vector earlier(vector a, vector b) { return pick(a < b, a, b); }

/* When the first of a cell's messages arrives, which are at lo .. hi-1 of those in order of cells. */
static double earliest_of(const fgc_rounds *r, int64_t lo, int64_t hi)
{
    enum { ABREAST = 2 };
    double each[LANES], least = INFINITY;
    int64_t j = lo;
    if (r->straight && hi - lo >= LANES * ABREAST) {
        vector a = load(r->arrival + j), b = load(r->arrival + j + LANES);
        for (j += LANES * ABREAST; j + LANES * ABREAST <= hi; j += LANES * ABREAST) {
            a = earlier(a, load(r->arrival + j));
            b = earlier(b, load(r->arrival + j + LANES));
        }
        store(each, earlier(a, b));
        for (int t = 0; t < LANES; t++)
            least = each[t] < least ? each[t] : least;
    }
    double other = INFINITY;
    for (; j + 1 < hi; j += 2) {
        const double x = r->arrival[r->order[j]], y = r->arrival[r->order[j + 1]];
        least = x < least ? x : least;
        other = y < other ? y : other;
    }
    if (j < hi) {
        const double x = r->arrival[r->order[j]];
        least = x < least ? x : least;
    }
    return other < least ? other : least;
}

/* Messages of workers that send several arrive here: what is late for all is not looked at. */
static double cells_ready(fgc_rounds *r, const double *whole)
{
    const fgc_completion_plan *plan = r->plan;
    double *const key = r->gathered;
    for (int64_t c = 0; c < plan->groups; c++)
        key[c] = r->single ? earliest_of(r, r->bound[c], r->bound[c + 1]) : INFINITY;
    for (int64_t i = 0; i < plan->workers && !r->single; i++) {
        const double begin = r->begin[i], work = whole[i];
        for (int64_t m = plan->first[i]; m < plan->first[i + 1]; m++) {
            const double x = begin + work * plan->share[m];
            double *const earliest = key + plan->group[m];
            r->arrival[m] = x;
            if (x > r->limit)
                break;
            *earliest = x < *earliest ? x : *earliest;
        }
    }
    if (plan->total <= 0)
        return 0;
    if (r->rank)
        return select_rank(r, key, plan->groups, r->rank, r->windows);
    memcpy(r->weight, plan->need, (size_t)plan->groups * sizeof *r->weight);
    return select_key(r, key, r->spare, r->weight, r->spare_weight, plan->groups, r->heaviest,
                      plan->total);
}

/* ------------------------------------------------------------------ messages in order of arrival */

static double next_arrival(const fgc_rounds *r, int64_t at)
{
    return r->arrival[r->next[r->heap[at]]];
}

static void sift_down(fgc_rounds *r, int64_t at)
{
    const int64_t worker = r->heap[at];
    const double arrival = r->arrival[r->next[worker]];
    for (int64_t child; (child = 2 * at + 1) < r->waiting; at = child) {
        if (child + 1 < r->waiting && next_arrival(r, child + 1) < next_arrival(r, child))
            child++;
        if (arrival <= next_arrival(r, child))
            break;
        r->heap[at] = r->heap[child];
    }
    r->heap[at] = worker;
}

static void start_queue(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    r->waiting = 0;
    for (int64_t i = 0; i < plan->workers; i++) {
        r->next[i] = plan->first[i];
        r->heap[r->waiting] = i;
        r->waiting += plan->first[i] < plan->first[i + 1];
    }
    for (int64_t at = r->waiting / 2; at-- > 0;)
        sift_down(r, at);
}

static int64_t take_next(fgc_rounds *r)
{
    const int64_t worker = r->heap[0], message = r->next[worker]++;
    if (r->next[worker] == r->plan->first[worker + 1])
        r->heap[0] = r->heap[--r->waiting];
    if (r->waiting)
        sift_down(r, 0);
    return message;
}

/* ---------------------------------------------------------------- intervals that connect 0 and k */

/* Edges between the same two points are there when the first of them is; two that follow each other
 * at a point where no other ends, when the last of them is; and one that ends where no other does is
 * of no use. What remains of the graph is often one edge from 0 to k. */
typedef struct {
    int64_t ends, edge;
} joint;

static int by_ends(const void *a, const void *b)
{
    const joint *const x = a, *const y = b;
    if (x->ends != y->ends)
        return x->ends < y->ends ? -1 : 1;
    return (x->edge > y->edge) - (x->edge < y->edge);
}

static void add_step(fgc_rounds *r, int serial, int64_t to, int64_t from)
{
    r->step[r->steps++] = (step){to, from, serial};
}

/* One edge in the place of those between the same points, none in that of loops. */
static int merge_parallel(fgc_rounds *r, joint *joints)
{
    int64_t count = 0;
    for (int64_t j = 0; j < r->edges; j++) {
        const int64_t e = r->edge[j], low = r->start[e] < r->stop[e] ? r->start[e] : r->stop[e];
        const int64_t high = r->start[e] + r->stop[e] - low;
        if (low != high)
            joints[count++] = (joint){low * (r->plan->total + 1) + high, e};
    }
    qsort(joints, (size_t)count, sizeof *joints, by_ends);
    const int64_t before = r->edges;
    r->edges = 0;
    for (int64_t j = 0; j < count; j++)
        if (j && joints[j].ends == joints[j - 1].ends)
            add_step(r, 0, r->edge[r->edges - 1], joints[j].edge);
        else
            r->edge[r->edges++] = joints[j].edge;
    return r->edges < before;
}

/* One edge in the place of two that follow each other, none in that of dead ends. At each point `ends`
 * counts the edges that end there, and `which` is their exclusive or: of two, one tells the other. */
static int merge_serial(fgc_rounds *r, int64_t *ends, int64_t *which, int64_t *gone)
{
    const int64_t k = r->plan->total, before = r->edges;
    for (int64_t point = 0; point <= k; point++)
        ends[point] = which[point] = 0;
    for (int64_t j = 0; j < r->edges; j++) {
        const int64_t e = r->edge[j];
        gone[e] = 0;
        ends[r->start[e]]++;
        ends[r->stop[e]]++;
        which[r->start[e]] ^= e;
        which[r->stop[e]] ^= e;
    }
    for (int64_t j = 0; j < r->edges; j++) {
        const int64_t e = r->edge[j];
        for (int64_t side = 0; side < 2 && !gone[e]; side++) {
            int64_t *const end = side ? r->stop : r->start, *const far = side ? r->start : r->stop;
            while (end[e] != 0 && end[e] != k && ends[end[e]] == 2 && end[e] != far[e]) {
                const int64_t point = end[e], other = which[point] ^ e;
                const int64_t next = r->start[other] + r->stop[other] - point;
                add_step(r, 1, e, other);
                gone[other] = 1;
                ends[point] = 0;
                which[next] ^= other ^ e;
                end[e] = next;
            }
            if (end[e] != 0 && end[e] != k && ends[end[e]] == 1) {
                gone[e] = 1;
                ends[end[e]]--;
                ends[far[e]]--;
                which[far[e]] ^= e;
            }
        }
    }
    int64_t kept = 0;
    for (int64_t j = 0; j < before; j++)
        if (!gone[r->edge[j]])
            r->edge[kept++] = r->edge[j];
    r->edges = kept;
    return kept < before;
}

/* `work`: as many numbers as 3 messages and 2 points. */
static void reduce_graph(fgc_rounds *r, int64_t *work)
{
    const fgc_completion_plan *plan = r->plan;
    const int64_t all = plan->first[plan->workers], points = plan->total + 1;
    for (int64_t e = 0; e < all; e++) {
        r->edge[e] = e;
        r->start[e] = plan->group[e];
        r->stop[e] = plan->other[e];
    }
    r->edges = all;
    joint *const joints = (joint *)work;
    int64_t *const ends = work + 2 * all, *const which = ends + points, *const gone = which + points;
    for (int changed = 1; changed;) {
        changed = merge_parallel(r, joints);
        changed |= merge_serial(r, ends, which, gone);
    }
}

static int64_t root(int64_t *parent, int64_t point)
{
    while (parent[point] != point)
        point = parent[point] = parent[parent[point]];
    return point;
}

static void join(fgc_rounds *r, int64_t e)
{
    r->parent[root(r->parent, r->start[e])] = root(r->parent, r->stop[e]);
}

static int connected(fgc_rounds *r)
{
    return root(r->parent, 0) == root(r->parent, r->plan->total);
}

static void take_apart(fgc_rounds *r)
{
    for (int64_t point = 0; point <= r->plan->total; point++)
        r->parent[point] = point;
}

static void sort_edges(int64_t *edge, int64_t count, const double *key)
{
    int64_t gap = 1;
    while (gap < count / 3)
        gap = 3 * gap + 1;
    for (; gap; gap /= 3)
        for (int64_t j = gap; j < count; j++) {
            const int64_t e = edge[j];
            int64_t at = j;
            for (; at >= gap && key[edge[at - gap]] > key[e]; at -= gap)
                edge[at] = edge[at - gap];
            edge[at] = e;
        }
}

/* When 0 and k are connected, if edges of `near` do it, one after the other; else -1. */
static double connect(fgc_rounds *r, int64_t *near, int64_t count)
{
    sort_edges(near, count, r->key);
    for (int64_t j = 0; j < count; j++) {
        join(r, near[j]);
        if (connected(r))
            return r->key[near[j]];
    }
    return -1;
}

/* What comes before the window together, and what comes inside one by one; -1 if that is not when 0
 * and k are first connected. */
static double connect_near(fgc_rounds *r, const window *w)
{
    int64_t *const early = r->order, *const near = r->near;
    int64_t before = 0, inside = 0;
    for (int64_t j = 0; j < r->edges; j++) {
        const int64_t e = r->edge[j];
        early[before] = near[inside] = e;
        before += r->key[e] < w->low;
        inside += (r->key[e] >= w->low) & (r->key[e] <= w->high);
    }
    for (int64_t j = 0; j < before; j++)
        join(r, early[j]);
    return connected(r) ? -1 : connect(r, near, inside);
}

/* By the keys of the edges that remain. */
static double graph_ready(fgc_rounds *r)
{
    if (r->edges <= 1)
        return r->edges ? r->key[r->edge[0]] : INFINITY;
    take_apart(r);
    double ready = connect_near(r, r->windows);
    if (ready < 0) {
        take_apart(r);
        memcpy(r->near, r->edge, (size_t)r->edges * sizeof *r->near);
        ready = connect(r, r->near, r->edges);
        if (ready < 0)
            return INFINITY;
    }
    note(r, r->windows, ready);
    return ready;
}

static double tiling_ready(fgc_rounds *r)
{
    const int64_t all = r->plan->first[r->plan->workers];
    if (r->plan->total == 0)
        return 0;
    memcpy(r->key, r->arrival, (size_t)all * sizeof *r->key);
    for (int64_t j = 0; j < r->steps; j++) {
        const step s = r->step[j];
        const double x = r->key[s.to], y = r->key[s.from];
        r->key[s.to] = (x < y) == s.serial ? y : x;
    }
    return graph_ready(r);
}

/* ------------------------------------------------------------------- edges of a graph, and rows */

/* When all messages of as many workers came as are waited for in any case. */
static double await_workers(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    if (!plan->wait)
        return INFINITY;
    double *const last = r->gathered;
    for (int64_t i = 0; i < plan->workers; i++)
        last[i] = r->arrival[plan->first[i + 1] - 1];
    return select_rank(r, last, plan->workers, plan->wait, r->windows + plan->groups + 1);
}

static int64_t root_and_side(const fgc_rounds *r, int64_t vertex, int64_t *side)
{
    for (*side = 1; r->parent[vertex] != vertex; vertex = r->parent[vertex])
        *side *= r->sign[vertex];
    return vertex;
}

/* 1 if no combination of the edges of a component counts each of its vertices once. */
static int64_t lacks(const fgc_rounds *r, int64_t root)
{
    return r->more[root] != 0 && !r->odd[root];
}

/* An edge comes. Of each root: the members, how many more of these are on its side than on the other,
 * and whether a cycle is odd. Returns by how many there are more components that lack something. */
static int64_t add_edge(fgc_rounds *r, int64_t m)
{
    int64_t one, other;
    int64_t u = root_and_side(r, r->plan->group[m], &one);
    int64_t v = root_and_side(r, r->plan->other[m], &other);
    int64_t before = lacks(r, u);
    if (u == v) {
        r->odd[u] |= one == other;
    } else {
        before += lacks(r, v);
        if (r->size[u] < r->size[v]) {
            const int64_t smaller = u;
            u = v;
            v = smaller;
        }
        r->parent[v] = u;
        r->sign[v] = -one * other;
        r->size[u] += r->size[v];
        r->more[u] += r->sign[v] * r->more[v];
        r->odd[u] |= r->odd[v];
    }
    return lacks(r, u) - before;
}

/* Messages one after the other, but none that comes after `latest`. */
static double edges_ready(fgc_rounds *r, double latest)
{
    const int64_t vertices = r->plan->total;
    int64_t lacking = vertices;
    for (int64_t v = 0; v < vertices; v++) {
        r->parent[v] = v;
        r->sign[v] = r->size[v] = r->more[v] = 1;
        r->odd[v] = 0;
    }
    start_queue(r);
    while (r->waiting) {
        const double now = next_arrival(r, 0);
        if (now > latest)
            break;
        lacking += add_edge(r, take_next(r));
        if (lacking == 0)
            return now;
    }
    return INFINITY;
}

/* Whether a message can be spared with those that are: an orthonormal basis of all columns but the
 * first, of which that is carried along. */
static int can_spare(fgc_rounds *r, int64_t m)
{
    enum { PASSES = 2 }; /* one leaves rounding errors of the size of what was taken away */
    static const double ZERO = 1e-9, SOLVED = 1e-6;
    const int64_t width = r->plan->width;
    double *const row = r->basis + r->held * width;
    memcpy(row, r->plan->spare + m * width, (size_t)width * sizeof *row);
    double square = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        for (int64_t b = 0; b < r->held; b++) {
            const double *const other = r->basis + b * width;
            double along = 0;
            for (int64_t j = 1; j < width; j++)
                along += other[j] * row[j];
            for (int64_t j = 0; j < width; j++)
                row[j] -= along * other[j];
        }
        square = 0;
        for (int64_t j = 1; j < width; j++)
            square += row[j] * row[j];
    }
    if (square <= ZERO * ZERO)
        return fabs(row[0]) <= SOLVED;
    const double scale = 1 / sqrt(square);
    for (int64_t j = 0; j < width; j++)
        row[j] *= scale;
    r->held++;
    return 1;
}

/* From the last message on: the first one that cannot be spared. Those after `latest` are, or else
 * nothing suffices by then. */
static double span_ready(fgc_rounds *r, double latest)
{
    const int64_t all = r->plan->first[r->plan->workers];
    int64_t came = 0;
    r->held = 0;
    for (int64_t m = 0; m < all; m++)
        if (r->arrival[m] <= latest)
            r->order[came++] = m;
        else if (!can_spare(r, m))
            return INFINITY;
    sort_edges(r->order, came, r->arrival);
    while (came--)
        if (!can_spare(r, r->order[came]))
            return r->arrival[r->order[came]];
    return 0;
}

/* ------------------------------------------------------------------------------------- rounds */

/* Messages by block: a counting sort. */
static void sort_by_block(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    const int64_t messages = plan->first[plan->workers];
    for (int64_t b = 0; b <= plan->groups; b++)
        r->bound[b] = 0;
    for (int64_t m = 0; m < messages; m++)
        r->bound[plan->group[m] + 1]++;
    for (int64_t b = 0; b < plan->groups; b++)
        r->bound[b + 1] += r->bound[b];
    /* Each block is filled from its end. */
    for (int64_t m = messages; m-- > 0;)
        r->order[--r->bound[plan->group[m] + 1]] = m;
    for (int64_t b = 0; b < plan->groups; b++)
        r->bound[b] = r->bound[b + 1];
    r->bound[plan->groups] = messages;
}

/* Of `load` computations those that are done after `since` of `whole` seconds, as 2^52 and more, so
 * that the number is in the lower bits. `sent`: the part of the work after which the last message that
 * came was sent. Beside a long delay the time since may have lost the digits that tell. */
static FGC_INLINE double computed(double load, double whole, double since, double sent)
{
    const double quotient = since / whole;
    double part = since > 0 ? quotient : 0;
    part = since < whole ? part : (since < 0 ? 0 : 1);
    part = part > sent ? part : sent;
    const double done = load * part + 1e-9, nearest = done + 0x1p52;
    return nearest - 0x1p52 > done ? nearest - 1 : nearest;
}

static FGC_INLINE int64_t lower_bits(double number)
{
    int64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits & (((int64_t)1 << 52) - 1);
}

/* Messages that have come by when a round is ready, of workers that send one. In `sent` each worker's
 * part of its work until the last of its messages that came. */
static int64_t count_single(const fgc_rounds *r, double ready, double *sent)
{
    const double *const share = r->plan->share, *const arrival = r->arrival;
    const int64_t n = r->plan->workers;
    int64_t heard = 0;
    for (int64_t i = 0; i < n; i++) {
        heard += arrival[i] <= ready;
        sent[i] = arrival[i] <= ready ? share[i] : 0;
    }
    return heard;
}

/* The same where they send several, and of how many workers any came. */
static int64_t count_several(const fgc_rounds *r, double ready, double *sent, int64_t *senders)
{
    const fgc_completion_plan *plan = r->plan;
    int64_t heard = 0;
    *senders = 0;
    for (int64_t i = 0; i < plan->workers; i++) {
        const int64_t first = plan->first[i], end = plan->first[i + 1];
        int64_t came = 0;
        if (r->many)
            for (int64_t m = first; m < end && r->arrival[m] <= ready; m++)
                came++;
        else
            for (int64_t m = first; m < end; m++)
                came += r->arrival[m] <= ready;
        heard += came;
        *senders += came > 0;
        sent[i] = came ? plan->share[first + came - 1] : 0;
    }
    return heard;
}

static int64_t count_computed(const fgc_rounds *r, const double *whole, double ready,
                              const double *sent)
{
    const double *const load = r->load, *const begin = r->begin;
    const int64_t n = r->plan->workers;
    int64_t done = 0;
    for (int64_t i = 0; i < n; i++)
        done += lower_bits(computed(load[i], whole[i], ready - begin[i], sent[i]));
    return done;
}

/* Room for so many numbers of 8 bytes each, from what is at *at on. */
static void *take(char **at, int64_t count)
{
    void *const taken = *at;
    *at += count * 8;
    return taken;
}

/* What is the same in all rounds. Returns the memory, to be freed. */
static void *start_rounds(fgc_rounds *r, const fgc_completion_plan *plan)
{
    const int64_t n = plan->workers, all = plan->first[n], groups = plan->groups;
    const int64_t keys = (all > groups ? all : groups) + FEW;
    const int64_t points = plan->kind == FGC_TILING ? plan->total + 1 : 0;
    const int64_t vertices = plan->kind == FGC_EDGES ? plan->total : 0;
    const int64_t width = plan->kind == FGC_SPAN ? plan->width : 0;
    const int64_t size = sizeof(window) / 8, messages = points ? all : 0;
    char *const memory = malloc((size_t)(5 * n + all + 7 * keys + 9 * messages +
                                         (groups + 2) * (1 + size) + 3 * points + 5 * vertices +
                                         width * width) *
                                8);
    if (!memory)
        return NULL;
    char *at = memory;
    *r = (fgc_rounds){
        .plan = plan, .random = 1, .single = 1, .straight = 1, .many = all > MANY * n};
    r->begin = take(&at, n);
    r->load = take(&at, n);
    r->sent = take(&at, n);
    r->arrival = take(&at, all);
    r->key = take(&at, keys);
    r->spare = take(&at, keys);
    r->gathered = take(&at, keys);
    r->weight = take(&at, keys);
    r->spare_weight = take(&at, keys);
    r->order = take(&at, keys);
    r->near = take(&at, keys);
    r->bound = take(&at, groups + 1);
    r->windows = take(&at, (groups + 2) * size);
    r->start = take(&at, messages);
    r->stop = take(&at, messages);
    r->edge = take(&at, messages);
    r->step = take(&at, 3 * messages);
    int64_t *const reduction = take(&at, 3 * messages + 2 * points);
    r->parent = take(&at, points + vertices);
    r->sign = take(&at, vertices);
    r->size = take(&at, vertices);
    r->more = take(&at, vertices);
    r->odd = take(&at, vertices);
    r->basis = take(&at, width * width);
    r->heap = take(&at, n);
    r->next = take(&at, n);
    for (int64_t i = 0; i < n; i++) {
        r->load[i] = (double)plan->loads[i];
        r->single &= plan->first[i] == i && plan->first[i + 1] == i + 1;
    }
    r->last = (window){INFINITY, -INFINITY, INFINITY, -INFINITY, 0};
    for (int64_t w = 0; w < groups + 2; w++)
        r->windows[w] = r->last;
    if (plan->kind == FGC_TILING) {
        reduce_graph(r, reduction);
    } else if (plan->kind == FGC_BLOCKS || plan->kind == FGC_CELLS) {
        sort_by_block(r);
        for (int64_t j = 0; j < all; j++)
            r->straight &= r->order[j] == j;
    }
    if (plan->kind == FGC_CELLS) {
        int64_t least = INT64_MAX, most = 0;
        for (int64_t c = 0; c < groups; c++) {
            r->heaviest += plan->need[c];
            least = plan->need[c] < least ? plan->need[c] : least;
            most = plan->need[c] > most ? plan->need[c] : most;
        }
        if (plan->total > r->heaviest - least) /* all, or more */
            r->rank = plan->total > r->heaviest ? groups + 1 : groups;
        else if (least == most && plan->total > 0)
            r->rank = (plan->total + most - 1) / most;
    }
    return memory;
}

/* What is written of each round. */
typedef struct {
    double *time;
    int64_t *messages, *workers, *computations;
} report;

/* Of workers with several messages those alone that arrive within the limit, and one more; of cells
 * see there. */
static void fill_arrivals(fgc_rounds *r, const double *whole)
{
    const fgc_completion_plan *plan = r->plan;
    if (r->single) {
        for (int64_t i = 0; i < plan->workers; i++)
            r->arrival[i] = r->begin[i] + whole[i] * plan->share[i];
        return;
    }
    for (int64_t i = 0; i < plan->workers && plan->kind != FGC_CELLS; i++) {
        const double begin = r->begin[i], work = whole[i];
        const int64_t end = plan->first[i + 1];
        int64_t m = plan->first[i];
        if (r->limit < INFINITY) {
            while (m < end && (r->arrival[m] = begin + work * plan->share[m]) <= r->limit)
                m++;
            for (m++; m < end; m++)
                r->arrival[m] = INFINITY;
        } else {
            for (; m < end; m++)
                r->arrival[m] = begin + work * plan->share[m];
        }
    }
}

static double find_ready(fgc_rounds *r, const double *whole)
{
    fill_arrivals(r, whole);
    const fgc_rule kind = r->plan->kind;
    double ready = INFINITY;
    if (kind == FGC_BLOCKS)
        ready = blocks_ready(r);
    else if (kind == FGC_CELLS)
        ready = cells_ready(r, whole);
    else if (kind == FGC_TILING)
        ready = tiling_ready(r);
    const double latest = await_workers(r);
    if (kind == FGC_EDGES)
        ready = edges_ready(r, latest);
    else if (kind == FGC_SPAN)
        ready = span_ready(r, latest);
    return ready < latest ? ready : latest;
}

static void run_rounds(fgc_rounds *r, const double *delay, const double *work, double *late,
                       int64_t rounds, double receive, double overhead, int interrupted, report to)
{
    const fgc_completion_plan *plan = r->plan;
    const int64_t n = plan->workers;
    for (int64_t round = 0; round < rounds; round++) {
        const double *const wait = delay + round * n, *const whole = work + round * n;
        for (int64_t i = 0; i < n; i++)
            r->begin[i] = late[i] + wait[i];
        const int near = interrupted && r->many && !plan->wait && r->last.low <= r->last.high;
        r->limit = near ? r->last.high : INFINITY;
        double ready = find_ready(r, whole);
        if (ready > r->limit) {
            r->limit = INFINITY;
            ready = find_ready(r, whole);
        }
        note(r, &r->last, ready);

        int64_t senders;
        const int64_t heard = r->single ? (senders = count_single(r, ready, r->sent))
                                        : count_several(r, ready, r->sent, &senders);
        double end = ready;
        if (receive > 0) {
            start_queue(r);
            for (int64_t left = heard; left > 0; left--) {
                const double taken = r->arrival[take_next(r)] + (double)left * receive;
                end = taken > end ? taken : end;
            }
        }
        to.time[round] = end;
        to.messages[round] = heard;
        to.workers[round] = senders;
        to.computations[round] = count_computed(r, whole, ready, r->sent);
        if (interrupted)
            continue;
        end += overhead;
        for (int64_t i = 0; i < n; i++) {
            double free_at = late[i];
            for (int64_t m = plan->first[i]; m < plan->first[i + 1] && free_at <= end; m++)
                free_at = r->arrival[m];
            late[i] = free_at > end ? free_at - end : 0;
        }
    }
}

fgc_status FGC_AT_LEVEL(fgc_completion_part)(const fgc_completion_plan *plan, const double *delay,
                                        const double *work, double *late, int64_t rounds,
                                        double receive, double overhead, int interrupted,
                                        double *time, int64_t *messages, int64_t *workers,
                                        int64_t *computations)
{
    fgc_rounds r;
    void *const memory = start_rounds(&r, plan);
    if (!memory)
        return FGC_NO_MEMORY;
    run_rounds(&r, delay, work, late, rounds, receive, overhead, interrupted,
               (report){time, messages, workers, computations});
    free(memory);
    return FGC_OK;
}
