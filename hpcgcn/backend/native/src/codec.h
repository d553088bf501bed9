/* The quantiser. Bytes must equal the reference's: float32 arithmetic in the contract's order, nothing fused. */

typedef struct {
    float zero, step;
} row_range;

static float bits_as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint32_t float_as_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

/* The nearest bfloat16 that is not above (or, upward, not below) the value. */
static float bf16_towards(float value, bool upward)
{
    const uint32_t truncated = float_as_bits(value) & 0xFFFF0000u;
    const bool inexact = bits_as_float(truncated) != value;
    const bool away = inexact && (upward ? value > 0.0f : value < 0.0f);
    return bits_as_float(away ? truncated + 0x10000u : truncated);
}

static uint16_t bf16_bits(float value)
{
    const uint32_t bits = float_as_bits(value);
    return value != value ? 0x7FC0 : (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

static bool row_extent(const float *row, int64_t width, float *low, float *high)
{
    vfloat least = splat(INFINITY), most = splat(-INFINITY);
    vint strange = {0};
    const vfloat limit = splat(FLT_MAX);
    int64_t k = 0;
    for (; k < width; k += LANES) {
        /* The last vector of a wide row overlaps the one before; a short row repeats its first element. */
        vfloat value;
        if (k + LANES <= width) {
            value = load(row + k);
        } else if (width >= LANES) {
            value = load(row + width - LANES);
        } else {
            for (int lane = 0; lane < LANES; lane++)
                value[lane] = row[lane < width ? lane : 0];
        }
        least = choose(value < least, value, least);
        most = choose(value > most, value, most);
        strange |= ~((value <= limit) & (value >= -limit));
    }
    *low = least[0], *high = most[0];
    bool finite = !strange[0];
    for (int lane = 1; lane < LANES; lane++) {
        *low = least[lane] < *low ? least[lane] : *low;
        *high = most[lane] > *high ? most[lane] : *high;
        finite &= !strange[lane];
    }
    return finite;
}

static row_range quantiser_range(const float *row, int64_t width, int bits, bool wide)
{
    if (width == 0)
        return (row_range){0.0f, 0.0f};
    float low, high;
    if (!row_extent(row, width, &low, &high))
        return (row_range){NAN, NAN};
    low += 0.0f, high += 0.0f;              /* -0 becomes 0, so that equal rows have equal bytes */
    const double levels = (1 << bits) - 1;
    const float zero = wide ? low : bf16_towards(low, false);
    float step = (float)(((double)high - (double)zero) / levels);
    if ((double)zero + levels * (double)step < (double)high)
        step = nextafterf(step, INFINITY);
    return (row_range){zero, wide ? step : bf16_towards(step, true)};
}

static float stored_nearest(float value, bool wide)
{
    return wide ? value : bits_as_float((uint32_t)bf16_bits(value) << 16);
}

/* For rounding to the nearest: the range is cut into 2^bits cells, zero is the centre of the first. */
static row_range quantiser_cells(const float *row, int64_t width, int bits, bool wide)
{
    if (width == 0)
        return (row_range){0.0f, 0.0f};
    float low, high;
    if (!row_extent(row, width, &low, &high))
        return (row_range){NAN, NAN};
    const float step = stored_nearest((float)(((double)high - (double)low) / (1 << bits)), wide);
    return (row_range){stored_nearest((float)((double)low + (double)step / 2), wide), step};
}

/* Codes of up to DRAW_COLUMNS elements, one a byte. */
static void code_elements(const float *row, int64_t n, row_range range, float levels, const uint16_t *noise,
                          uint8_t *codes)
{
    if (!(range.step > 0.0f)) {
        memset(codes, 0, (size_t)n);
        return;
    }
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        float q = (row[k] - range.zero) / range.step + (float)noise[k] * (1.0f / 65536.0f);
        q = q >= 0.0f ? q : 0.0f;           /* a NaN, from an infinite step, codes as 0 */
        q = q < levels ? q : levels;
        codes[k] = (uint8_t)(int32_t)q;
    }
}

/* n codes to ceil(n * bits / 8) bytes; codes are followed by zeros up to a multiple of 8. A multiplication moves the
 * bits of eight (or four) bytes next to each other in its top byte. */
static void pack_codes(const uint8_t *codes, int64_t n, int bits, uint8_t *out)
{
    const int64_t bytes = (n * bits + 7) / 8;
    for (int64_t i = 0; i < bytes; i++) {
        uint64_t eight;
        uint32_t four;
        switch (bits) {
        case 1:
            memcpy(&eight, codes + i * 8, 8);
            out[i] = (uint8_t)((eight * 0x0102040810204080u) >> 56);
            break;
        case 2:
            memcpy(&four, codes + i * 4, 4);
            out[i] = (uint8_t)((four * 0x01041040u) >> 24);
            break;
        case 4:
            out[i] = (uint8_t)(codes[i * 2] | codes[i * 2 + 1] << 4);
            break;
        default:
            out[i] = codes[i];
        }
    }
}

/* The inverse: writes whole bytes' worth of codes, so `codes` needs room for n rounded up to 8. */
static void unpack_codes(const uint8_t *in, int64_t n, int bits, uint8_t *codes)
{
    const int64_t bytes = (n * bits + 7) / 8;
    for (int64_t i = 0; i < bytes; i++) {
        uint64_t eight;
        uint32_t four;
        switch (bits) {
        case 1:
            eight = (in[i] * 0x0101010101010101u) & 0x8040201008040201u;
            eight = ((eight + 0x7F7F7F7F7F7F7F7Fu) >> 7) & 0x0101010101010101u;
            memcpy(codes + i * 8, &eight, 8);
            break;
        case 2:
            four = in[i];
            four = (four | four << 12) & 0x000F000Fu;
            four = (four | four << 6) & 0x03030303u;
            memcpy(codes + i * 4, &four, 4);
            break;
        case 4:
            codes[i * 2] = in[i] & 15;
            codes[i * 2 + 1] = in[i] >> 4;
            break;
        default:
            codes[i] = in[i];
        }
    }
}

static void write_range(uint8_t *out, int64_t row, row_range range, bool wide)
{
    if (wide) {
        memcpy(out + row * 8, &range, 8);
    } else {
        const uint16_t pair[2] = {bf16_bits(range.zero), bf16_bits(range.step)};
        memcpy(out + row * 4, pair, 4);
    }
}

static row_range read_range(const uint8_t *data, int64_t row, bool wide)
{
    row_range range;
    uint16_t pair[2];
    if (wide) {
        memcpy(&range, data + row * 8, 8);
        return range;
    }
    memcpy(pair, data + row * 4, 4);
    return (row_range){bits_as_float((uint32_t)pair[0] << 16), bits_as_float((uint32_t)pair[1] << 16)};
}

/* threads, x, width, index, ids, bits, key0, key1, nearest, wide, out */
static void run_quantise(call *c)
{
    const argument *a = c->in;
    const float *x = a[1].data;
    const int64_t width = a[2].integer, *ids = a[4].data, n = a[4].bytes / 8;
    const int32_t *index = a[3].data;
    const int bits = (int)a[5].integer;
    const philox_key key = {{(uint32_t)a[6].integer, (uint32_t)a[7].integer}};
    const bool nearest = a[8].integer != 0, wide = a[9].integer != 0;
    uint8_t *out = a[10].data;
    const int64_t header = n * (wide ? 8 : 4), row_bytes = (width * bits + 7) / 8;
    REQUIRE(bits == 1 || bits == 2 || bits == 4 || bits == 8, "bits must be 1, 2, 4 or 8");
    REQUIRE(a[10].bytes >= header + n * row_bytes, "out is too short for the coded rows");
    REQUIRE(!index || a[3].bytes == n * 4, "index and ids must be equally long");
    if (width > 0)
        REQUIRE(index ? all_inside(index, n, a[1].bytes / 4 / width) : a[1].bytes == n * width * 4,
                "an index lies outside the rows of x");
    const int team = team_size(a[0].integer, n * width);
    PARALLEL_FOR(team)
    for (int64_t row = 0; row < n; row++) {
        const float *from = x + (index ? index[row] : row) * width;
        const row_range range = (nearest ? quantiser_cells : quantiser_range)(from, width, bits, wide);
        write_range(out, row, range, wide);
        for (int64_t first = 0; first < width; first += DRAW_COLUMNS) {
            uint16_t noise[DRAW_COLUMNS];
            uint8_t codes[DRAW_COLUMNS + 8];
            const int64_t columns = smaller(DRAW_COLUMNS, width - first);
            if (nearest)
                for (int64_t k = 0; k < columns; k++)
                    noise[k] = 1 << 15;     /* one half: floor(q + 1/2) */
            else
                draw_bits(key, ids[row], first, columns, noise);
            code_elements(from + first, columns, range, (float)((1 << bits) - 1), noise, codes);
            memset(codes + columns, 0, 8);
            pack_codes(codes, columns, bits, out + header + row * row_bytes + first * bits / 8);
        }
    }
}

/* threads, data, bits, wide, out, n, width */
static void run_dequantise(call *c)
{
    const argument *a = c->in;
    const uint8_t *data = a[1].data;
    const int bits = (int)a[2].integer;
    const bool wide = a[3].integer != 0;
    float *out = a[4].data;
    const int64_t n = a[5].integer, width = a[6].integer;
    const int64_t header = n * (wide ? 8 : 4), row_bytes = (width * bits + 7) / 8;
    REQUIRE(bits == 1 || bits == 2 || bits == 4 || bits == 8, "bits must be 1, 2, 4 or 8");
    REQUIRE(a[4].bytes == n * width * 4, "out has the wrong shape");
    REQUIRE(a[1].bytes >= header + n * row_bytes, "data is too short for the coded rows");
    const int team = team_size(a[0].integer, n * width);
    PARALLEL_FOR(team)
    for (int64_t row = 0; row < n; row++) {
        const row_range range = read_range(data, row, wide);
        for (int64_t first = 0; first < width; first += DRAW_COLUMNS) {
            uint8_t codes[DRAW_COLUMNS + 8];
            const int64_t columns = smaller(DRAW_COLUMNS, width - first);
            unpack_codes(data + header + row * row_bytes + first * bits / 8, columns, bits, codes);
            float *to = out + row * width + first;
#pragma omp simd
            for (int64_t k = 0; k < columns; k++)
                to[k] = (float)codes[k] * range.step + range.zero;
        }
    }
}
