/* Decoding vectors of messages that are plain sums: over cells or intervals of the partitions, or of two
 * blocks. */
#include <string.h>

#include "levels.h"

fgc_status fgc_cells_vector(const fgc_cells *of, const int64_t *survivors, double *out, void *work, int64_t f)
{
    unsigned char *const here = work, *const came = here + of->messages;
    int64_t weight = 0;
    memset(work, 0, (size_t)(of->messages + of->cells));
    for (int64_t l = 0; l < f; l++) {
        const int64_t i = survivors[l];
        if ((uint64_t)i >= (uint64_t)of->messages)
            return FGC_OUT_OF_RANGE;
        if (here[i])
            return FGC_DUPLICATE;
        here[i] = 1;
        const int64_t cell = of->cell[i];
        const int first = !came[cell];
        came[cell] = 1;
        weight += first ? of->weight[cell] : 0;
        if (of->inverse) {
            out[2 * l] = first ? of->inverse[2 * i] : 0;
            out[2 * l + 1] = first ? of->inverse[2 * i + 1] : 0;
        } else {
            out[l] = first;
        }
    }
    if (weight < of->need)
        return FGC_TOO_FEW;
    if (of->whole > 0 && of->whole != (double)weight)
        for (int64_t l = 0; l < (of->inverse ? 2 : 1) * f; l++)
            out[l] *= of->whole / (double)weight;
    return FGC_OK;
}

/* place[i] = l + 1 if message i is survivor l, and 0 if it is none. */
static fgc_status find_places(const int64_t *survivors, int64_t f, int64_t messages, int64_t *place)
{
    memset(place, 0, (size_t)messages * sizeof *place);
    for (int64_t l = 0; l < f; l++) {
        const int64_t i = survivors[l];
        if ((uint64_t)i >= (uint64_t)messages)
            return FGC_OUT_OF_RANGE;
        if (place[i])
            return FGC_DUPLICATE;
        place[i] = l + 1;
    }
    return FGC_OK;
}

/* Find the fewest intervals that lead from the first point to the last, forwards or (`back`) both ways, by
 * breadth-first search. via[p] - 1 is the edge by which point p is reached; via[p] is 0 if it is not. */
static void find_path(const fgc_tiling *of, const int64_t *place, int back, int64_t *via, int64_t *queue)
{
    const int64_t last = of->points - 1;
    int64_t ahead = 0, end = 1;
    memset(via, 0, (size_t)of->points * sizeof *via);
    queue[0] = 0;
    while (ahead < end && !via[last]) {
        const int64_t here = queue[ahead++];
        for (int64_t e = of->first[here]; e < of->first[here + 1]; e++) {
            const int64_t there = of->other[e];
            if (!place[of->message[e]] || via[there] || !there || (there < here && !back))
                continue;
            via[there] = e + 1;
            queue[end++] = there;
        }
    }
}

fgc_status fgc_tiling_vector(const fgc_tiling *of, const int64_t *survivors, double *out, void *work, int64_t f)
{
    int64_t *const place = work, *const via = place + of->messages, *const queue = via + of->points;
    const int64_t last = of->points - 1;
    const fgc_status fault = find_places(survivors, f, of->messages, place);
    if (fault)
        return fault;
    memset(out, 0, (size_t)f * sizeof *out);
    for (int back = 0; back < 2; back++) {
        find_path(of, place, back, via, queue);
        if (!via[last])
            continue;
        for (int64_t point = last; point;) {
            const int64_t e = via[point] - 1, from = of->point[e];
            out[place[of->message[e]] - 1] = from < point ? 1 : -1;
            point = from;
        }
        return FGC_OK;
    }
    return FGC_TOO_FEW;
}

/* ------------------------------------------------------------------------------- sums of two blocks
 *
 * Messages are edges of a graph on the blocks. `collect` and `explore` build the graph of the edges that
 * came, and its components, each with two sides. `aim` sets the best sums at vertices. `shorten` finds short
 * values of edges that nearly have these sums, and `settle` makes the sums exact along the trees. */

/* Conjugate gradients end when the squared relative residual is below SHORT, or after STEPS steps. The
 * vector is then the shortest, to about a part in a thousand. */
static const double SHORT = 1e-6;
enum { STEPS = 100 };

/* The graph of the edges that came, and work space. */
typedef struct {
    int64_t n, m; /* vertices, edges */
    const double *weight;
    int64_t *slot, *u, *v; /* of each edge: its place among the survivors, and its ends */
    int64_t *first, *at;   /* edges at[first[i] .. first[i+1]-1] meet at vertex i */
    int64_t *order, *part; /* vertices as reached; where each component begins in `order` */
    int64_t parts;
    int64_t *via;                    /* the edge by which a vertex is reached; for a component's first
                                     * vertex, an edge between vertices of one side, or -1 */
    int64_t *side;                   /* of each vertex: 1 or -1; 0 if it is not reached */
    double *value, *share;           /* of each edge; share: 1 over the weight of both its ends */
    double *wanted, *lacking;        /* of each vertex: the sum of its edges that is wanted; what it lacks */
    double *scale, *step, *back, *y; /* work space of `shorten` */
} graph;

/* Collect the edges that came, and sort them by vertex. */
static void collect(graph *g, const fgc_edges *of, const int64_t *place)
{
    memset(g->first, 0, (size_t)(g->n + 2) * sizeof *g->first);
    g->m = 0;
    for (int64_t i = 0; i < of->messages; i++)
        if (place[i]) {
            const int64_t j = g->m++, u = of->ends[2 * i], v = of->ends[2 * i + 1];
            g->slot[j] = place[i] - 1;
            g->u[j] = u;
            g->v[j] = v;
            g->share[j] = 1 / (g->weight[u] + g->weight[v]);
            g->first[u + 2]++;
            g->first[v + 2]++;
        }
    for (int64_t i = 2; i <= g->n; i++)
        g->first[i + 1] += g->first[i];
    /* first[i + 1] moves from the first to past the last edge of i */
    for (int64_t j = 0; j < g->m; j++) {
        g->at[g->first[g->u[j] + 1]++] = j;
        g->at[g->first[g->v[j] + 1]++] = j;
    }
}

/* Find the components by breadth-first search, and put the two ends of each tree edge on opposite sides. */
static void explore(graph *g)
{
    int64_t end = 0;
    memset(g->side, 0, (size_t)g->n * sizeof *g->side);
    g->parts = 0;
    for (int64_t root = 0; root < g->n; root++) {
        if (g->side[root])
            continue;
        int64_t ahead = end;
        g->part[g->parts++] = end;
        g->order[end++] = root;
        g->side[root] = 1;
        g->via[root] = -1;
        for (; ahead < end; ahead++) {
            const int64_t here = g->order[ahead];
            for (int64_t l = g->first[here]; l < g->first[here + 1]; l++) {
                const int64_t j = g->at[l], there = g->u[j] + g->v[j] - here;
                if (!g->side[there]) {
                    g->side[there] = -g->side[here];
                    g->via[there] = j;
                    g->order[end++] = there;
                } else if (g->side[there] == g->side[here] && g->via[root] < 0) {
                    g->via[root] = j;
                }
            }
        }
    }
    g->part[g->parts] = end;
}

/* Set `wanted` to the sums nearest to 1 that edges can have. Returns whether these are 1 everywhere.
 *
 * If no edge of a component joins vertices of one side, the sums of both sides have the same total. `more`,
 * by which the sides differ in size, is then spread over the vertices, in inverse proportion to their
 * weights. */
static int aim(graph *g)
{
    int exact = 1;
    for (int64_t c = 0; c < g->parts; c++) {
        const int64_t begin = g->part[c], end = g->part[c + 1];
        int64_t more = 0;
        double inverse = 0;
        for (int64_t l = begin; l < end; l++) {
            more += g->side[g->order[l]];
            inverse += 1 / g->weight[g->order[l]];
        }
        if (g->via[g->order[begin]] >= 0)
            more = 0;
        for (int64_t l = begin; l < end; l++) {
            const int64_t i = g->order[l];
            g->wanted[i] = 1 - (double)(g->side[i] * more) / (g->weight[i] * inverse);
        }
        if (end - begin == 1)
            g->wanted[g->order[begin]] = 0; /* exactly: no edge could make up for a rounding */
        exact &= more == 0;
    }
    return exact;
}

/* out = at each vertex, the sum of share (x[u] + x[v]) over its edges */
static void spread(const graph *g, const double *x, double *out)
{
    memset(out, 0, (size_t)g->n * sizeof *out);
    for (int64_t j = 0; j < g->m; j++) {
        const double both = g->share[j] * (x[g->u[j]] + x[g->v[j]]);
        out[g->u[j]] += both;
        out[g->v[j]] += both;
    }
}

/* Find the shortest values whose sums are as wanted. They are share (y[u] + y[v]); conjugate gradients find
 * y. */
static void shorten(graph *g)
{
    double *const r = g->lacking, *const p = g->step, *const q = g->back, *const y = g->y;
    double square = 0;
    for (int64_t i = 0; i < g->n; i++)
        p[i] = 0.5;
    spread(g, p, g->scale); /* the sum of the shares of each vertex's edges */
    for (int64_t i = 0; i < g->n; i++) {
        g->scale[i] = g->scale[i] > 0 ? 1 / g->scale[i] : 0;
        r[i] = g->wanted[i];
        p[i] = g->scale[i] * r[i];
        y[i] = 0;
        square += r[i] * p[i];
    }
    const double enough = SHORT * square;
    for (int steps = 0; steps < STEPS && square > enough; steps++) {
        double curve = 0, next = 0;
        spread(g, p, q);
        for (int64_t i = 0; i < g->n; i++)
            curve += p[i] * q[i];
        if (!(curve > 0))
            break;
        for (int64_t i = 0; i < g->n; i++) {
            y[i] += square / curve * p[i];
            r[i] -= square / curve * q[i];
            next += g->scale[i] * r[i] * r[i];
        }
        for (int64_t i = 0; i < g->n; i++)
            p[i] = g->scale[i] * r[i] + next / square * p[i];
        square = next;
    }
    for (int64_t j = 0; j < g->m; j++)
        g->value[j] = g->share[j] * (y[g->u[j]] + y[g->v[j]]);
}

/* Make the sums exact: move what they lack along the tree, from the leaves of each component to its
 * root. If an edge joins vertices of one side, its value first changes by half of what would arrive at
 * the root, which cancels it. */
static void settle(graph *g)
{
    memcpy(g->lacking, g->wanted, (size_t)g->n * sizeof *g->lacking);
    for (int64_t j = 0; j < g->m; j++) {
        g->lacking[g->u[j]] -= g->value[j];
        g->lacking[g->v[j]] -= g->value[j];
    }
    for (int64_t c = 0; c < g->parts; c++) {
        const int64_t begin = g->part[c], end = g->part[c + 1], odd = g->via[g->order[begin]];
        if (odd >= 0) {
            double sum = 0;
            for (int64_t l = begin; l < end; l++)
                sum += (double)g->side[g->order[l]] * g->lacking[g->order[l]];
            sum *= 0.5 * (double)g->side[g->u[odd]];
            g->value[odd] += sum;
            g->lacking[g->u[odd]] -= sum;
            g->lacking[g->v[odd]] -= sum;
        }
        for (int64_t l = end - 1; l > begin; l--) {
            const int64_t i = g->order[l], j = g->via[i];
            g->value[j] += g->lacking[i];
            g->lacking[g->u[j] + g->v[j] - i] -= g->lacking[i];
        }
    }
}

fgc_status fgc_edges_vector(const fgc_edges *of, const int64_t *survivors, double *out, void *work, int64_t f)
{
    const int64_t n = of->vertices, m = of->messages;
    int64_t *const place = work;
    graph g = {.n = n, .weight = of->weight};
    g.slot = place + m;
    g.u = g.slot + m;
    g.v = g.u + m;
    g.at = g.v + m;
    g.first = g.at + 2 * m;
    g.order = g.first + n + 2;
    g.part = g.order + n;
    g.via = g.part + n + 1;
    g.side = g.via + n;
    g.value = (double *)(g.side + n);
    g.share = g.value + m;
    g.wanted = g.share + m;
    g.lacking = g.wanted + n;
    g.scale = g.lacking + n;
    g.step = g.scale + n;
    g.back = g.step + n;
    g.y = g.back + n;
    const fgc_status fault = find_places(survivors, f, m, place);
    if (fault)
        return fault;
    collect(&g, of, place);
    explore(&g);
    if (!aim(&g) && f < of->need)
        return FGC_TOO_FEW;
    shorten(&g);
    settle(&g);
    for (int64_t j = 0; j < g.m; j++)
        out[g.slot[j]] = g.value[j];
    return FGC_OK;
}
