"""Row-wise steps of the models, each a hand-written forward/backward pair.

base.py says what a step is, and what it declares of itself.
"""

from hpcgcn.nn.steps.activation import Dropout, Epilogue, LayerNorm
from hpcgcn.nn.steps.base import PassContext, Step
from hpcgcn.nn.steps.batch_norm import BatchNorm, BatchNormEpilogue, ColumnStatistics, ColumnSums
from hpcgcn.nn.steps.gcnii import IdentityMapping, InitialResidual
from hpcgcn.nn.steps.linear import Bias, ConstantProduct, Linear, SparseInput, SparseLinear
from hpcgcn.nn.steps.order import eager_weight_gradients, run_backward, run_weight_gradients

__all__ = ["BatchNorm", "BatchNormEpilogue", "Bias", "ColumnStatistics", "ColumnSums",
           "ConstantProduct", "Dropout", "Epilogue", "IdentityMapping", "InitialResidual",
           "LayerNorm", "Linear", "PassContext", "SparseInput", "SparseLinear", "Step",
           "eager_weight_gradients", "run_backward", "run_weight_gradients"]
