/* Sparse matrices apart from the product: its transpose, dropout of entries, a check of the structure. */

/* Each thread owns a slice of the columns and walks all entries: no two write the same number, the order is fixed. */
static void scatter_slice(const product *p, const float *x, int64_t start, int64_t stop, int64_t column, int64_t n)
{
    for (int64_t row = start; row < stop; row++) {
        const float *from = x + row * p->width + column;
        const float row_scale = p->row_scale ? p->row_scale[row] : 1.0f;
        for (int64_t entry = p->indptr[row]; entry < p->row_ends[row]; entry++) {
            const int64_t target = p->indices[entry];
            const float weight = row_scale * entry_weight(p, entry, target);
            float *to = p->out + target * p->width + column;
#pragma omp simd
            for (int64_t k = 0; k < n; k++)
                to[k] += weight * from[k];
        }
    }
}

/* threads, indptr, indices, weights, row_scale, column_scale, x, width, out, start, stop, n_columns */
static void run_spmm_transposed_add(call *c)
{
    const argument *a = c->in;
    const int64_t width = a[7].integer, start = a[9].integer, stop = a[10].integer, n_rows = a[1].bytes / 8 - 1;
    const int64_t *indptr = a[1].data;
    const product p = {.indptr = indptr, .row_ends = indptr + 1, .indices = a[2].data, .weights = a[3].data,
                       .row_scale = a[4].data, .column_scale = a[5].data, .width = width, .out = a[8].data};
    REQUIRE(0 <= start && start <= stop && stop <= n_rows, "rows out of range");
    REQUIRE(a[6].bytes == n_rows * width * 4, "x must have a row for each row of the matrix");
    REQUIRE(a[8].bytes == a[11].integer * width * 4, "out must have a row for each column of the matrix");
    const int64_t slice = 16, n_slices = (width + slice - 1) / slice;
    int team = team_size(a[0].integer, (p.indptr[stop] - p.indptr[start]) * width);
    team = (int)smaller(team, n_slices > 0 ? n_slices : 1);
    PARALLEL_FOR(team)
    for (int t = 0; t < team; t++) {
        int64_t first = n_slices * t / team * slice, last = smaller(n_slices * (t + 1) / team * slice, width);
        scatter_slice(&p, a[6].data, start, stop, first, last - first);
    }
}

/* -- entries ------------------------------------------------------------------------------------------------------- */

static void drop_entries(const int32_t *columns, const float *weights, float *out, int n, philox_key key, int64_t id,
                         uint32_t threshold, float scale)
{
    uint64_t blocks[COUNTERS] = {0};
    for (int lane = 0; lane < n; lane++)
        blocks[lane] = (uint32_t)columns[lane] / 8;
    vlong block;
    memcpy(&block, blocks, sizeof block);
    const uint64_t node = (uint64_t)id;
    philox_state c = {{block, (vlong){0} + (node & 0xFFFFFFFFu), (vlong){0} + (node >> 32), (vlong){0}}};
    c = philox(c, key);
    uint64_t words[4][COUNTERS];
    memcpy(words, c.word, sizeof words);
    for (int lane = 0; lane < n; lane++) {
        const int half = columns[lane] % 8;
        const uint32_t bits = (uint32_t)(words[half / 2][lane] >> (half % 2 * 16)) & 0xFFFF;
        out[lane] = bits >= threshold ? (weights ? weights[lane] : 1.0f) * scale : 0.0f;
    }
}

/* threads, indptr, indices, weights, out, key0, key1, threshold, scale, ids, start, stop */
static void run_sparse_dropout(call *c)
{
    const argument *a = c->in;
    const int64_t *indptr = a[1].data, *ids = a[9].data, start = a[10].integer, stop = a[11].integer;
    const int32_t *indices = a[2].data;
    const float *weights = a[3].data, scale = (float)a[8].number;
    float *out = a[4].data;
    const philox_key key = {{(uint32_t)a[5].integer, (uint32_t)a[6].integer}};
    const uint32_t threshold = (uint32_t)a[7].integer;
    const int64_t n_rows = a[1].bytes / 8 - 1;
    REQUIRE(0 <= start && start <= stop && stop <= n_rows, "rows out of range");
    REQUIRE(a[4].bytes == a[2].bytes, "out must have weights of its own, one an entry");
    REQUIRE(!threshold || a[9].bytes == n_rows * 8, "ids must have one number per row");
    const int team = team_size(a[0].integer, (indptr[stop] - indptr[start]) * 4);
#pragma omp parallel for schedule(dynamic, 256) num_threads(team) if (team > 1)
    for (int64_t row = start; row < stop; row++)
        for (int64_t entry = indptr[row]; entry < indptr[row + 1]; entry += COUNTERS) {
            int n = (int)smaller(COUNTERS, indptr[row + 1] - entry);
            const float *from = weights ? weights + entry : NULL;
            if (threshold)
                drop_entries(indices + entry, from, out + entry, n, key, ids[row], threshold, scale);
            else
                for (int lane = 0; lane < n; lane++)
                    out[entry + lane] = from ? from[lane] : 1.0f;
        }
}

/* threads, indptr, indices, n_columns: a matrix whose entries all lie inside. Asked once, when a handle is made. */
static void run_check_csr(call *c)
{
    const argument *a = c->in;
    const int64_t *indptr = a[1].data, n_rows = a[1].bytes / 8 - 1, nnz = a[2].bytes / 4, n_columns = a[3].integer;
    const int32_t *indices = a[2].data;
    REQUIRE(n_rows >= 0 && indptr[0] == 0 && indptr[n_rows] == nnz, "indptr must run from 0 to the number of entries");
    bool falls = false, outside = false;
    for (int64_t row = 0; row < n_rows; row++)
        falls |= indptr[row] > indptr[row + 1];
    for (int64_t entry = 0; entry < nnz; entry++)
        outside |= indices[entry] < 0 || indices[entry] >= n_columns;
    REQUIRE(!falls, "indptr must not decrease");
    REQUIRE(!outside, "an index lies outside the columns");
}
