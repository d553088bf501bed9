/* Products with a sparse matrix: rows of x are gathered and summed in registers, a tile of the width at a time. */

typedef struct {
    const int64_t *indptr;
    const int32_t *indices;
    const float *weights, *row_scale, *column_scale;    /* NULL: ones */
    const void *x;
    const float *mask;                                  /* NULL: none */
    float mask_scale;
    int64_t width;
    float *out;
    bool accumulate;
} product;

/* How many entries ahead a gathered row is fetched: far enough to hide memory, near enough to stay in the cache. */
enum { PREFETCH_ENTRIES = 8, CACHE_LINE = 64 };

/* A chunk is the unit given to a thread: about this many entries, so that skewed degrees balance. */
enum { CHUNK_ENTRIES = 1 << 14 };

INLINE void prefetch_row(const product *p, int kind, int64_t column, int n_vectors, int64_t entry)
{
    const char *from = element(p->x, kind, p->indices[entry] * p->width + column);
    for (int byte = 0; byte < n_vectors * LANES * storage_bytes(kind); byte += CACHE_LINE)
        __builtin_prefetch(from + byte);
}

INLINE vfloat masked(vfloat value, vfloat mask) { return (vfloat)((vint)value & (mask != 0.0f)); }

INLINE void finish_vector(const product *p, int64_t position, vfloat sum, float scale, int tail)
{
    float *to = p->out + position;
    sum *= splat(scale);
    if (p->accumulate)
        sum += tail ? load_first(to, tail) : load(to);
    if (tail)
        store_first(to, sum, tail);
    else
        store(to, sum);
}

/* Rows first .. last of the product, columns `column` .. + n_vectors * LANES; the last vector has `tail` lanes (0: all).
 * All but the first four arguments are constants where this is inlined. */
INLINE void multiply_tile(const product *p, int64_t first, int64_t last, int64_t column, int tail, int n_vectors,
                          int kind, bool weighted, bool has_mask)
{
    const int64_t last_entry = p->indptr[last] - 1;
    for (int64_t row = first; row < last; row++) {
        vfloat sum[n_vectors];
        for (int v = 0; v < n_vectors; v++)
            sum[v] = (vfloat){0};
        for (int64_t entry = p->indptr[row]; entry < p->indptr[row + 1]; entry++) {
            prefetch_row(p, kind, column, n_vectors, smaller(entry + PREFETCH_ENTRIES, last_entry));
            const int64_t source = p->indices[entry], position = source * p->width + column;
            float weight = 1.0f;
            if (weighted) {
                weight = p->weights ? p->weights[entry] : 1.0f;
                if (p->column_scale)
                    weight *= p->column_scale[source];
            }
            for (int v = 0; v < n_vectors; v++) {
                const int64_t at = position + v * LANES;
                const bool partial = v == n_vectors - 1 && tail;
                vfloat value = partial ? load_stored_first(p->x, kind, at, tail) : load_stored(p->x, kind, at);
                if (has_mask)
                    value = masked(value, partial ? load_first(p->mask + at, tail) : load(p->mask + at));
                sum[v] = weighted ? multiply_add(splat(weight), value, sum[v]) : sum[v] + value;
            }
        }
        const float scale = (p->row_scale ? p->row_scale[row] : 1.0f) * p->mask_scale;
        for (int v = 0; v < n_vectors; v++)
            finish_vector(p, row * p->width + column + v * LANES, sum[v], scale, v == n_vectors - 1 ? tail : 0);
    }
}

/* -- one function for each number of vectors, storage type, and with or without weights and mask ------------------ */

typedef void (*tile_function)(const product *, int64_t first, int64_t last, int64_t column, int tail);

#define TILE(kind, weighted, mask, n)                                                                           \
    static void tile_##kind##_##weighted##_##mask##_##n(const product *p, int64_t first, int64_t last,          \
                                                        int64_t column, int tail)                               \
    {                                                                                                           \
        if (tail)                                                                                               \
            multiply_tile(p, first, last, column, tail, n, kind, weighted, mask);                               \
        else                                                                                                    \
            multiply_tile(p, first, last, column, 0, n, kind, weighted, mask);                                  \
    }
#define TILES_OF_WIDTHS(kind, weighted, mask)                                                                   \
    TILE(kind, weighted, mask, 1) TILE(kind, weighted, mask, 2) TILE(kind, weighted, mask, 3)                   \
    TILE(kind, weighted, mask, 4) TILE(kind, weighted, mask, 5) TILE(kind, weighted, mask, 6)                   \
    TILE(kind, weighted, mask, 7) TILE(kind, weighted, mask, 8)
#define TILES(kind)                                                                                             \
    TILES_OF_WIDTHS(kind, 0, 0) TILES_OF_WIDTHS(kind, 0, 1) TILES_OF_WIDTHS(kind, 1, 0) TILES_OF_WIDTHS(kind, 1, 1)
TILES(FP32) TILES(FP16) TILES(BF16)

enum { MAX_VECTORS = 8 };

#define ROW(kind, weighted, mask)                                                                               \
    {tile_##kind##_##weighted##_##mask##_1, tile_##kind##_##weighted##_##mask##_2,                              \
     tile_##kind##_##weighted##_##mask##_3, tile_##kind##_##weighted##_##mask##_4,                              \
     tile_##kind##_##weighted##_##mask##_5, tile_##kind##_##weighted##_##mask##_6,                              \
     tile_##kind##_##weighted##_##mask##_7, tile_##kind##_##weighted##_##mask##_8}
#define ROWS(kind) {{ROW(kind, 0, 0), ROW(kind, 0, 1)}, {ROW(kind, 1, 0), ROW(kind, 1, 1)}}
static const tile_function tiles[3][2][2][MAX_VECTORS] = {ROWS(FP32), ROWS(FP16), ROWS(BF16)};

static void multiply_chunk(const product *p, int64_t first, int64_t last, const tile_function *by_vectors)
{
    for (int64_t column = 0; column < p->width;) {
        int64_t n_vectors = smaller((p->width - column + LANES - 1) / LANES, MAX_VECTORS);
        int64_t columns = smaller(n_vectors * LANES, p->width - column);
        by_vectors[n_vectors - 1](p, first, last, column, (int)(columns % LANES));
        column += columns;
    }
}

/* The first row of [start, stop] at which `work` (entries plus rows, from start) is reached. */
static int64_t row_at(const int64_t *indptr, int64_t start, int64_t stop, int64_t work)
{
    int64_t low = start, high = stop;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (indptr[middle] - indptr[start] + (middle - start) < work)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* threads, indptr, indices, weights, row_scale, column_scale, x, kind, width, out, start, stop, accumulate, mask,
 * mask_scale, n_columns */
static void run_spmm(call *c)
{
    const argument *a = c->in;
    const int kind = (int)a[7].integer;
    const int64_t start = a[10].integer, stop = a[11].integer, width = a[8].integer, n_columns = a[15].integer;
    product p = {.indptr = a[1].data, .indices = a[2].data, .weights = a[3].data, .row_scale = a[4].data,
                 .column_scale = a[5].data, .x = a[6].data, .mask = a[13].data, .mask_scale = 1.0f, .width = width,
                 .out = a[9].data, .accumulate = a[12].integer != 0};
    const int64_t n_rows = a[1].bytes / 8 - 1;
    REQUIRE(0 <= start && start <= stop && stop <= n_rows, "rows out of range");
    REQUIRE(a[6].bytes == n_columns * width * storage_bytes(kind), "x must have a row for each column of the matrix");
    REQUIRE(a[9].bytes == n_rows * width * 4, "out must have a row for each row of the matrix, as wide as x");
    REQUIRE(!p.mask || a[13].bytes == n_columns * width * 4, "mask must have the shape of x");
    if (p.mask)
        p.mask_scale = (float)a[14].number;
    const tile_function *by_vectors = tiles[kind][p.weights || p.column_scale][p.mask != NULL];
    const int64_t work = p.indptr[stop] - p.indptr[start] + (stop - start);
    const int64_t n_chunks = (work + CHUNK_ENTRIES - 1) / CHUNK_ENTRIES;
    const int team = team_size(a[0].integer, work * width);
#pragma omp parallel for schedule(dynamic) num_threads(team) if (team > 1)
    for (int64_t chunk = 0; chunk < n_chunks; chunk++) {
        int64_t first = row_at(p.indptr, start, stop, chunk * CHUNK_ENTRIES);
        int64_t last = chunk == n_chunks - 1 ? stop : row_at(p.indptr, start, stop, (chunk + 1) * CHUNK_ENTRIES);
        multiply_chunk(&p, first, last, by_vectors);
    }
}

/* -- the transposed product ---------------------------------------------------------------------------------------- */

/* Each thread owns a slice of the columns and walks all entries: no two write the same number, the order is fixed. */
static void scatter_slice(const product *p, int64_t start, int64_t stop, int64_t column, int64_t n)
{
    const float *x = p->x;
    for (int64_t row = start; row < stop; row++) {
        const float *from = x + row * p->width + column;
        const float row_scale = p->row_scale ? p->row_scale[row] : 1.0f;
        for (int64_t entry = p->indptr[row]; entry < p->indptr[row + 1]; entry++) {
            const int64_t target = p->indices[entry];
            float weight = row_scale * (p->weights ? p->weights[entry] : 1.0f);
            if (p->column_scale)
                weight *= p->column_scale[target];
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
    product p = {.indptr = a[1].data, .indices = a[2].data, .weights = a[3].data, .row_scale = a[4].data,
                 .column_scale = a[5].data, .x = a[6].data, .width = width, .out = a[8].data};
    REQUIRE(0 <= start && start <= stop && stop <= n_rows, "rows out of range");
    REQUIRE(a[6].bytes == n_rows * width * 4, "x must have a row for each row of the matrix");
    REQUIRE(a[8].bytes == a[11].integer * width * 4, "out must have a row for each column of the matrix");
    const int64_t slice = 16, n_slices = (width + slice - 1) / slice;
    int team = team_size(a[0].integer, (p.indptr[stop] - p.indptr[start]) * width);
    team = (int)smaller(team, n_slices > 0 ? n_slices : 1);
    PARALLEL_FOR(team)
    for (int t = 0; t < team; t++) {
        int64_t first = n_slices * t / team * slice, last = smaller(n_slices * (t + 1) / team * slice, width);
        scatter_slice(&p, start, stop, first, last - first);
    }
}

/* -- entries ------------------------------------------------------------------------------------------------------- */

static void drop_entries(const int32_t *columns, const float *weights, float *out, int n, philox_key key, int64_t id,
                         uint32_t threshold, float scale)
{
    vlong block = {0};
    for (int lane = 0; lane < n; lane++)
        block[lane] = (uint32_t)columns[lane] / 8;
    const uint64_t node = (uint64_t)id;
    philox_state c = {{block, (vlong){0} + (node & 0xFFFFFFFFu), (vlong){0} + (node >> 32), (vlong){0}}};
    c = philox(c, key);
    for (int lane = 0; lane < n; lane++) {
        const int half = columns[lane] % 8;
        const uint32_t bits = (uint32_t)(c.word[half / 2][lane] >> (half % 2 * 16)) & 0xFFFF;
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
    REQUIRE(!threshold || a[9].bytes == n_rows * 8, "ids must have one number a row");
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
