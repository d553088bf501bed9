/* All operations at one instruction set level. Compiled once a level, with that level's flags and -DLEVEL=its name. */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "threads.h"
#include "vector.h"
#include "storage.h"
#include "philox.h"

#include "rows.h"
#include "spmm.h"
#include "sparse.h"
#include "dense.h"
#include "columns.h"
#include "codec.h"
#include "epilogue.h"
#include "loss.h"
#include "attention.h"
#include "cover.h"
#include "labels.h"

#define JOIN(a, b) a##b
#define TABLE(level) JOIN(hpcgcn_operations_, level)

const operation TABLE(LEVEL)[] = {
    {"check_csr", "ilji", run_check_csr},
    {"spmm", "iljfffsiiFiiifdiBiiiil", run_spmm},
    {"tile_rows", "ifiSiiii", run_tile_rows},
    {"spmm_transposed_add", "iljffffiFiii", run_spmm_transposed_add},
    {"sparse_dropout", "iljfFiiidlii", run_sparse_dropout},
    {"axpby", "idfdfF", run_axpby},
    {"column_sum_add", "ifiF", run_column_sum_add},
    {"column_dots_add", "iffiL", run_column_dots_add},
    {"column_affine", "ifffffFi", run_column_affine},
    {"square_sum", "if=", run_square_sum},
    {"adam", "iFfFFddddddd", run_adam},
    {"gather_rows", "isijSiii", run_gather_rows},
    {"scatter_add_rows", "isijFi", run_scatter_add_rows},
    {"pack_columns", "ifijjF", run_pack_columns},
    {"unpack_columns", "ifjFid", run_unpack_columns},
    {"random_bits", "iiilSi", run_random_bits},
    {"quantise", "ifijliiiiiB", run_quantise},
    {"dequantise", "ibiiFii", run_dequantise},
    {"dropout", "ifFiiiiidl", run_dropout},
    {"epilogue_forward", "iFFfffFFiiiiidli", run_epilogue_forward},
    {"epilogue_backward", "iffFdfffFFFii", run_epilogue_backward},
    {"softmax_cross_entropy", "ifjdFif=", run_softmax_cross_entropy},
    {"sigmoid_cross_entropy", "ifbbdFi=", run_sigmoid_cross_entropy},
    {"head_dots", "iffFiii", run_head_dots},
    {"head_dots_backward", "ifffFFiii", run_head_dots_backward},
    {"attend", "illjifiiffFFFiiiiiiidll", run_attend},
    {"attention_gradients", "iffffFFiii", run_attention_gradients},
    {"attend_backward", "illjifiifffFFiiiiiidll", run_attend_backward},
    {"minimum_cover", "iljBB", run_minimum_cover},
    {"label_sweep", "ljiJlbLLiidiii=", run_label_sweep},
    {"count_pairs", "ljijLLi=", run_count_pairs},
    {NULL, NULL, NULL},
};
