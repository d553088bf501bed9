/* Whole columns: sums of products over rows in float64, and every column scaled and shifted. */

/* threads, x, y, width, out */
static void run_column_dots_add(call *c)
{
    const argument *a = c->in;
    const float *x = a[1].data, *y = a[2].data;
    double *out = a[4].data;
    const int64_t width = a[3].integer;
    REQUIRE(width >= 0 && a[4].bytes == width * 8, "out must be as wide as x");
    REQUIRE(!y || a[2].bytes == a[1].bytes, "x and y must have the same shape");
    const int64_t n = width ? a[1].bytes / 4 / width : 0, rows = block_rows(n), n_blocks = (n + rows - 1) / rows;
    if (n == 0)
        return;
    double *partial = calloc((size_t)(n_blocks * width), sizeof *partial);
    if (partial) {
        const int team = team_size(a[0].integer, n * width);
        PARALLEL_FOR(team)
        for (int64_t block = 0; block < n_blocks; block++) {
            double *sums = partial + block * width;
            for (int64_t row = block * rows; row < smaller((block + 1) * rows, n); row++) {
                const float *left = x + row * width;
                if (y) {
                    const float *right = y + row * width;
#pragma omp simd
                    for (int64_t k = 0; k < width; k++)
                        sums[k] += (double)left[k] * (double)right[k];
                } else {
#pragma omp simd
                    for (int64_t k = 0; k < width; k++)
                        sums[k] += (double)left[k];
                }
            }
        }
        for (int64_t block = 0; block < n_blocks; block++)
            for (int64_t k = 0; k < width; k++)
                out[k] += partial[block * width + k];
    } else {
        c->error = "out of memory";
    }
    free(partial);
}

/* threads, x, scale, y, weight, shift, out, width */
static void run_column_affine(call *c)
{
    const argument *a = c->in;
    const float *x = a[1].data, *scale = a[2].data, *y = a[3].data, *weight = a[4].data, *shift = a[5].data;
    float *out = a[6].data;
    const int64_t width = a[7].integer, n = width > 0 ? a[6].bytes / 4 / width : 0;
    REQUIRE(width >= 0 && a[2].bytes == width * 4 && a[5].bytes == width * 4, "scale and shift must be as wide as x");
    REQUIRE(a[1].bytes == a[6].bytes, "x and out must have the same shape");
    REQUIRE(!y || (a[3].bytes == a[6].bytes && a[4].bytes == width * 4), "y and weight must fit x");
    const int team = team_size(a[0].integer, n * width);
    PARALLEL_FOR(team)
    for (int64_t row = 0; row < n; row++) {
        const float *from = x + row * width;
        float *to = out + row * width;
        if (y) {
            const float *other = y + row * width;
#pragma omp simd
            for (int64_t k = 0; k < width; k++)
                to[k] = from[k] * scale[k] + other[k] * weight[k] + shift[k];
        } else {
#pragma omp simd
            for (int64_t k = 0; k < width; k++)
                to[k] = from[k] * scale[k] + shift[k];
        }
    }
}
