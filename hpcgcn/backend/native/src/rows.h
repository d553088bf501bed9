/* Rows gathered, scattered, converted and drawn. */

/* One row from one storage type to another; both kinds are constants where it is called. */
INLINE void convert_row(const void *x, int from_kind, int64_t from, void *out, int to_kind, int64_t to, int64_t width)
{
    int64_t k = 0;
    for (; k + LANES <= width; k += LANES)
        store_stored(out, to_kind, to + k, load_stored(x, from_kind, from + k));
    if (k < width) {
        const int n = (int)(width - k);
        store_stored_first(out, to_kind, to + k, load_stored_first(x, from_kind, from + k, n), n);
    }
}

INLINE void gather(const void *x, int from_kind, const int32_t *index, void *out, int to_kind, int64_t n, int64_t width,
                   int team)
{
    PARALLEL_FOR(team)
    for (int64_t row = 0; row < n; row++) {
        if (index && row + 4 < n)
            __builtin_prefetch(element(x, from_kind, index[row + 4] * width));
        convert_row(x, from_kind, (index ? index[row] : row) * width, out, to_kind, row * width, width);
    }
}

static bool all_inside(const int32_t *index, int64_t n, int64_t limit)
{
    bool outside = false;
    for (int64_t i = 0; i < n; i++)
        outside |= index[i] < 0 || index[i] >= limit;
    return !outside;
}

/* threads, x, from_kind, index, out, to_kind, n, width: rows index[i] of x, or all rows in order if there is none */
static void run_gather_rows(call *c)
{
    const argument *a = c->in;
    const int from_kind = (int)a[2].integer, to_kind = (int)a[5].integer;
    const int32_t *index = a[3].data;
    const int64_t n = a[6].integer, width = a[7].integer;
    const int64_t row_bytes = width * storage_bytes(from_kind);
    const int team = team_size(a[0].integer, n * width);
    REQUIRE(a[4].bytes == n * width * storage_bytes(to_kind), "out has the wrong shape");
    if (n == 0 || width == 0)
        return;
    REQUIRE(!index || a[3].bytes == n * 4, "index must have one number for each row of out");
    REQUIRE(index ? all_inside(index, n, a[1].bytes / row_bytes) : a[1].bytes == n * row_bytes,
            "an index lies outside the rows of x");
    const void *x = a[1].data;
    void *out = a[4].data;
    switch (from_kind * 3 + to_kind) {
    case FP32 * 3 + FP32: gather(x, FP32, index, out, FP32, n, width, team); break;
    case FP32 * 3 + FP16: gather(x, FP32, index, out, FP16, n, width, team); break;
    case FP32 * 3 + BF16: gather(x, FP32, index, out, BF16, n, width, team); break;
    case FP16 * 3 + FP32: gather(x, FP16, index, out, FP32, n, width, team); break;
    case BF16 * 3 + FP32: gather(x, BF16, index, out, FP32, n, width, team); break;
    default: c->error = "cannot convert between two 16-bit types";
    }
}

INLINE void scatter_add(const void *x, int kind, const int32_t *index, float *out, int64_t n, int64_t width, int team)
{
    PARALLEL_FOR(team)
    for (int64_t row = 0; row < n; row++) {
        float *to = out + index[row] * width;
        int64_t k = 0;
        for (; k + LANES <= width; k += LANES)
            store(to + k, load(to + k) + load_stored(x, kind, row * width + k));
        if (k < width) {
            const int rest = (int)(width - k);
            store_first(to + k, load_first(to + k, rest) + load_stored_first(x, kind, row * width + k, rest), rest);
        }
    }
}

/* threads, x, kind, index, out, width */
static void run_scatter_add_rows(call *c)
{
    const argument *a = c->in;
    const int kind = (int)a[2].integer;
    const int32_t *index = a[3].data;
    const int64_t n = a[3].bytes / 4, width = a[5].integer;
    const int team = team_size(a[0].integer, n * width);
    REQUIRE(a[1].bytes == n * width * storage_bytes(kind), "x must have a row for each index");
    if (n == 0 || width == 0)
        return;
    REQUIRE(all_inside(index, n, a[4].bytes / 4 / width), "an index lies outside the rows of out");
    switch (kind) {
    case FP32: scatter_add(a[1].data, FP32, index, a[4].data, n, width, team); break;
    case FP16: scatter_add(a[1].data, FP16, index, a[4].data, n, width, team); break;
    default: scatter_add(a[1].data, BF16, index, a[4].data, n, width, team);
    }
}

/* threads, x, x_width, index, columns, out */
static void run_pack_columns(call *c)
{
    const argument *a = c->in;
    const float *x = a[1].data;
    const int32_t *index = a[3].data, *columns = a[4].data;
    float *out = a[5].data;
    const int64_t x_width = a[2].integer, n = a[3].bytes / 4, n_columns = a[4].bytes / 4;
    REQUIRE(a[5].bytes == n * n_columns * 4, "out must have a row for each index and a column for each column picked");
    if (n == 0 || n_columns == 0)
        return;
    REQUIRE(all_inside(columns, n_columns, x_width), "a column lies outside x");
    REQUIRE(all_inside(index, n, a[1].bytes / 4 / x_width), "an index lies outside the rows of x");
    const int team = team_size(a[0].integer, n * n_columns);
    PARALLEL_FOR(team)
    for (int64_t row = 0; row < n; row++) {
        const float *from = x + index[row] * x_width;
        for (int64_t k = 0; k < n_columns; k++)
            out[row * n_columns + k] = from[columns[k]];
    }
}

/* threads, x, columns, out, out_width, scale */
static void run_unpack_columns(call *c)
{
    const argument *a = c->in;
    const float *x = a[1].data, scale = (float)a[5].number;
    const int32_t *columns = a[2].data;
    float *out = a[3].data;
    const int64_t n_columns = a[2].bytes / 4, out_width = a[4].integer;
    const int64_t n = out_width ? a[3].bytes / 4 / out_width : 0;
    REQUIRE(a[1].bytes == n * n_columns * 4, "x must have as many rows as out and a column for each column placed");
    REQUIRE(all_inside(columns, n_columns, out_width), "a column lies outside out");
    const int team = team_size(a[0].integer, n * out_width);
    PARALLEL_FOR(team)
    for (int64_t row = 0; row < n; row++) {
        float *to = out + row * out_width;
        memset(to, 0, (size_t)out_width * 4);
        for (int64_t k = 0; k < n_columns; k++)
            to[columns[k]] = x[row * n_columns + k] * scale;
    }
}

/* threads, key0, key1, ids, out, width */
static void run_random_bits(call *c)
{
    const argument *a = c->in;
    const philox_key key = {{(uint32_t)a[1].integer, (uint32_t)a[2].integer}};
    const int64_t *ids = a[3].data, n = a[3].bytes / 8, width = a[5].integer;
    uint16_t *out = a[4].data;
    REQUIRE(a[4].bytes == n * width * 2, "out must have a row for each id");
    const int team = team_size(a[0].integer, n * width);
    PARALLEL_FOR(team)
    for (int64_t row = 0; row < n; row++)
        for (int64_t first = 0; first < width; first += DRAW_COLUMNS) {
            uint16_t bits[DRAW_COLUMNS];
            const int64_t columns = smaller(DRAW_COLUMNS, width - first);
            draw_bits(key, ids[row], first, columns, bits);
            memcpy(out + row * width + first, bits, (size_t)columns * 2);
        }
}
