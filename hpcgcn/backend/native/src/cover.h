/* The minimum vertex cover of a bipartite graph, from a maximum matching (Hopcroft and Karp) and what alternating paths
 * reach from sources without a partner (Koenig). One thread: ranks work on different pairs at the same time. */

typedef struct {
    const int64_t *indptr;
    const int32_t *indices;
    int64_t n_sources, n_destinations;
    int32_t *partner_of_source, *partner_of_destination;    /* -1: none */
    int32_t *level;                                         /* of a source: hops from one without a partner; < 0: none */
    int32_t *queue;
    int64_t *cursor;                                        /* the next edge of a source to be tried */
} bipartite;

/* Each source takes the free destination with the fewest edges: most of the matching, in one pass. */
static void match_greedily(bipartite *g)
{
    int32_t *degree = g->queue + g->n_sources;
    memset(degree, 0, g->n_destinations * sizeof *degree);
    for (int64_t e = 0; e < g->indptr[g->n_sources]; e++)
        degree[g->indices[e]]++;
    for (int64_t s = 0; s < g->n_sources; s++) {
        int32_t best = -1;
        for (int64_t e = g->indptr[s]; e < g->indptr[s + 1]; e++) {
            const int32_t d = g->indices[e];
            if (g->partner_of_destination[d] < 0 && (best < 0 || degree[d] < degree[best]))
                best = d;
        }
        g->partner_of_source[s] = best;
        if (best >= 0)
            g->partner_of_destination[best] = (int32_t)s;
    }
}

/* Levels of all sources that alternating paths reach; true if one of them ends at a free destination. */
static bool find_levels(bipartite *g)
{
    int64_t n = 0;
    int32_t last = INT32_MAX;
    for (int64_t s = 0; s < g->n_sources; s++) {
        g->level[s] = g->partner_of_source[s] < 0 ? 0 : -1;
        g->cursor[s] = g->indptr[s];
        if (g->level[s] == 0)
            g->queue[n++] = (int32_t)s;
    }
    for (int64_t k = 0; k < n; k++) {
        const int32_t s = g->queue[k];
        if (g->level[s] > last)
            break;
        for (int64_t e = g->indptr[s]; e < g->indptr[s + 1]; e++) {
            const int32_t next = g->partner_of_destination[g->indices[e]];
            if (next < 0)
                last = g->level[s];
            else if (g->level[next] < 0) {
                g->level[next] = g->level[s] + 1;
                g->queue[n++] = next;
            }
        }
    }
    return last != INT32_MAX;
}

/* Look for a shortest path from a source to a free destination, and swap the matching along it. */
static void augment(bipartite *g, int32_t source)
{
    int32_t *path = g->queue;
    int64_t length = 0;
    path[length++] = source;
    while (length > 0) {
        const int32_t s = path[length - 1];
        if (g->cursor[s] == g->indptr[s + 1]) {
            g->level[s] = -1;                               /* leads nowhere: no other path need try it */
            length--;
            continue;
        }
        int32_t d = g->indices[g->cursor[s]++];
        const int32_t next = g->partner_of_destination[d];
        if (next >= 0) {
            if (g->level[next] == g->level[s] + 1)
                path[length++] = next;
            continue;
        }
        while (length > 0) {
            const int32_t at = path[--length], before = g->partner_of_source[at];
            g->level[at] = -1;
            g->partner_of_source[at] = d;
            g->partner_of_destination[d] = at;
            d = before;
        }
    }
}

/* threads, indptr, indices, covers (n_sources), served (n_destinations): 1 for what is in the cover; of all smallest
 * covers the one with the most sources */
static void run_minimum_cover(call *c)
{
    const argument *a = c->in;
    uint8_t *covers = a[3].data, *served = a[4].data;
    bipartite g = {.indptr = a[1].data, .indices = a[2].data, .n_sources = a[1].bytes / 8 - 1,
                   .n_destinations = a[4].bytes};
    REQUIRE(a[3].bytes == g.n_sources, "covers must have one byte per source");
    REQUIRE(g.indptr[0] == 0 && g.indptr[g.n_sources] == a[2].bytes / 4, "indptr must run from 0 to the edges");
    const int64_t n = g.n_sources, m = g.n_destinations;
    int32_t *numbers = malloc((3 * n + 2 * m + 1) * sizeof *numbers);
    g.cursor = malloc((n + 1) * sizeof *g.cursor);
    if (numbers == NULL || g.cursor == NULL) {
        free(numbers);
        free(g.cursor);
        REQUIRE(false, "no memory");
    }
    g.partner_of_source = numbers;
    g.level = numbers + n;
    g.partner_of_destination = numbers + 2 * n;
    g.queue = numbers + 2 * n + m;                          /* and behind it the degrees of destinations */
    memset(g.partner_of_destination, 0xff, m * sizeof *numbers);
    match_greedily(&g);
    while (find_levels(&g))
        for (int64_t s = 0; s < n; s++)
            if (g.partner_of_source[s] < 0)
                augment(&g, (int32_t)s);
    memset(served, 0, m);
    for (int64_t s = 0; s < n; s++) {
        covers[s] = g.level[s] < 0;
        for (int64_t e = g.indptr[s]; g.level[s] >= 0 && e < g.indptr[s + 1]; e++)
            served[g.indices[e]] = 1;
    }
    free(numbers);
    free(g.cursor);
}
