// SPDX-License-Identifier: MIT
/// \file
/// The table of halftone's operations. A row has an operation's tag, its autocast category, and its kind:
///
///     HALFTONE_OPERATION(softmax, fp32_on_cuda, softmax)
///
/// The tag is the name of the function that users call, `ht::softmax`; where it cannot be, a fourth column has that name, which reports
/// show, too. The category
/// is PyTorch's; an operation that its lists do not have keeps its input's type, as_input. The kind (operation_kind in operations.hpp)
/// decides what tables of policies, the ledger, lint, shadow runs and the count of work do with it.
///
/// A file that needs all operations defines HALFTONE_OPERATION and includes this one, which takes the macro away again; one that needs
/// the functions of one variable, or all operations but those of layers, defines HALFTONE_FUNCTION or HALFTONE_LAYER_OPERATION:
///
///     #define HALFTONE_OPERATION(tag, category, kind, ...) std::string(op::tag::name),
///     #include <halftone/policy/operation_table.hpp>
// No include guard: each file that reads the table includes it.

#ifndef HALFTONE_OPERATION
#define HALFTONE_OPERATION(tag, category, kind, ...)
#endif
// For functions of each element of one variable: their kind is `function`, and further arguments have defaults.
#ifndef HALFTONE_FUNCTION
#define HALFTONE_FUNCTION(tag, category) HALFTONE_OPERATION(tag, category, function)
#endif
// For operations that take a layer's parameters, or that only layers call.
#ifndef HALFTONE_LAYER_OPERATION
#define HALFTONE_LAYER_OPERATION HALFTONE_OPERATION
#endif

// clang-format off

// Functions of each element of one variable.
HALFTONE_FUNCTION(neg,        as_input)
HALFTONE_FUNCTION(abs,        as_input)
HALFTONE_FUNCTION(sqrt,       as_input)
HALFTONE_FUNCTION(rsqrt,      fp32_on_cuda)
HALFTONE_FUNCTION(reciprocal, fp32_on_cuda)
HALFTONE_FUNCTION(exp,        fp32_on_cuda)
HALFTONE_FUNCTION(expm1,      fp32_on_cuda)
HALFTONE_FUNCTION(log,        fp32_on_cuda)
HALFTONE_FUNCTION(log1p,      fp32_on_cuda)
HALFTONE_FUNCTION(log2,       fp32_on_cuda)
HALFTONE_FUNCTION(log10,      fp32_on_cuda)
HALFTONE_FUNCTION(sinh,       fp32_on_cuda)
HALFTONE_FUNCTION(cosh,       fp32_on_cuda)
HALFTONE_FUNCTION(tan,        fp32_on_cuda)
HALFTONE_FUNCTION(tanh,       as_input)
HALFTONE_FUNCTION(sigmoid,    as_input)
HALFTONE_FUNCTION(softplus,   fp32_on_cuda)
HALFTONE_FUNCTION(erf,        as_input)
HALFTONE_FUNCTION(relu,       as_input)
HALFTONE_FUNCTION(leaky_relu, as_input)
HALFTONE_FUNCTION(silu,       as_input)
HALFTONE_FUNCTION(gelu,       as_input)
HALFTONE_FUNCTION(gelu_erf,   as_input)

// Other pointwise operations.
HALFTONE_OPERATION(cast,        as_input,        pointwise)
HALFTONE_OPERATION(map,         as_input,        pointwise)
HALFTONE_OPERATION(add,         as_input,        pointwise)
HALFTONE_OPERATION(sub,         as_input,        pointwise)
HALFTONE_OPERATION(mul,         as_input,        pointwise)
HALFTONE_OPERATION(div,         as_input,        pointwise)
HALFTONE_OPERATION(pow,         fp32_on_cuda,    pointwise)
HALFTONE_OPERATION(atan2,       promote_on_cuda, pointwise)
HALFTONE_OPERATION(addcmul,     promote_on_cuda, pointwise)
HALFTONE_OPERATION(addcdiv,     promote_on_cuda, pointwise)
HALFTONE_OPERATION(prelu,       low_precision,   pointwise)
HALFTONE_OPERATION(where,       as_input,        pointwise)
HALFTONE_OPERATION(masked_fill, as_input,        pointwise)
HALFTONE_OPERATION(tril,        as_input,        pointwise)
HALFTONE_OPERATION(triu,        as_input,        pointwise)
HALFTONE_OPERATION(glu,         as_input,        pointwise)
HALFTONE_OPERATION(swiglu,      as_input,        pointwise)
HALFTONE_OPERATION(geglu,       as_input,        pointwise)

// Sums over all elements, and losses of each element of a prediction.
HALFTONE_OPERATION(sum,                              fp32_on_cuda,    sum)
HALFTONE_OPERATION(mean,                             as_input,        sum)
HALFTONE_OPERATION(norm,                             fp32_on_cuda,    reduction)
HALFTONE_OPERATION(dot,                              promote_on_cuda, reduction)
HALFTONE_OPERATION(mse_loss,                         fp32,            reduction)
HALFTONE_OPERATION(l1_loss,                          fp32,            reduction)
HALFTONE_OPERATION(smooth_l1_loss,                   fp32,            reduction)
HALFTONE_OPERATION(huber_loss,                       fp32,            reduction)
HALFTONE_OPERATION(binary_cross_entropy_with_logits, fp32,            reduction)
HALFTONE_OPERATION(binary_cross_entropy,             banned_on_cuda,  loss_of_probabilities)

// Along axes.
HALFTONE_OPERATION(cumsum,    fp32_on_cuda, along_axes)
HALFTONE_OPERATION(logsumexp, fp32_on_cuda, along_axes)
HALFTONE_OPERATION(var,       as_input,     along_axes)
HALFTONE_OPERATION(std_dev,   as_input,     along_axes, std)
HALFTONE_OPERATION(amax,      as_input,     along_axes)
HALFTONE_OPERATION(amin,      as_input,     along_axes)
HALFTONE_OPERATION(prod,      fp32,         along_axes)

// Elements in another order or place.
HALFTONE_OPERATION(cat,            promote_on_cpu,  join)
HALFTONE_OPERATION(stack,          promote_on_cpu,  join)
HALFTONE_OPERATION(gather,         as_input,        choice)
HALFTONE_OPERATION(index_select,   as_input,        choice)
HALFTONE_OPERATION(take_along_dim, as_input,        choice)
HALFTONE_OPERATION(scatter_add,    promote_on_cuda, choice)
HALFTONE_OPERATION(index_add,      as_input,        choice)
HALFTONE_OPERATION(permute,        as_input,        rearrangement)
HALFTONE_OPERATION(transpose,      as_input,        rearrangement)
HALFTONE_OPERATION(slice,          as_input,        rearrangement)
HALFTONE_OPERATION(select,         as_input,        rearrangement)
HALFTONE_OPERATION(split,          as_input,        rearrangement, split_with_sizes)
HALFTONE_OPERATION(flip,           as_input,        rearrangement)
HALFTONE_OPERATION(expand,         as_input,        rearrangement)

// Products and rows.
HALFTONE_OPERATION(matmul,        low_precision, product)
HALFTONE_OPERATION(softmax,       fp32_on_cuda,  softmax)
HALFTONE_OPERATION(log_softmax,   fp32_on_cuda,  softmax)
HALFTONE_OPERATION(cross_entropy, fp32,          cross_entropy)

// What layers compute. All norms compute in float, whatever their category.
HALFTONE_LAYER_OPERATION(linear,               low_precision, linear)
HALFTONE_LAYER_OPERATION(mlp,                  low_precision, mlp)  // two `linear`; the category of op::linear holds for it
HALFTONE_LAYER_OPERATION(conv2d,               low_precision, conv2d)
HALFTONE_LAYER_OPERATION(attention,            low_precision, attention)
HALFTONE_LAYER_OPERATION(linear_cross_entropy, low_to_fp32,   linear_cross_entropy)
HALFTONE_LAYER_OPERATION(layer_norm,           fp32_on_cuda,  layer_norm)
HALFTONE_LAYER_OPERATION(rms_norm,             fp32_on_cuda,  rms_norm)
HALFTONE_LAYER_OPERATION(batch_norm,           as_input,      channel_norm)
HALFTONE_LAYER_OPERATION(group_norm,           fp32_on_cuda,  channel_norm)
HALFTONE_LAYER_OPERATION(dropout,              as_input,      dropout)
HALFTONE_LAYER_OPERATION(embedding,            as_input,      embedding)
HALFTONE_LAYER_OPERATION(sparse_embedding,     as_input,      sparse_embedding)
HALFTONE_LAYER_OPERATION(rotary,               as_input,      other)
HALFTONE_LAYER_OPERATION(max_pool2d,           as_input,      other)
HALFTONE_LAYER_OPERATION(avg_pool2d,           as_input,      other)
HALFTONE_LAYER_OPERATION(adaptive_avg_pool2d,  as_input,      other)

// clang-format on

#undef HALFTONE_OPERATION
#undef HALFTONE_FUNCTION
#undef HALFTONE_LAYER_OPERATION
