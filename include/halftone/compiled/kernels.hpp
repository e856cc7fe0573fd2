// SPDX-License-Identifier: MIT
/// \file
/// The CPU kernels in the library halftone::compiled: those of the number types of the presets full_fp32, amp_bf16,
/// amp_fp16, tf32 and fp8_hybrid. kernel.hpp includes this file if HALFTONE_COMPILED is defined, which linking to
/// halftone::compiled does; sources then do not compile these kernels again. Kernels of other types are compiled where
/// they are used, as without the library.
///
/// Functions that are not templates are in the library, too, if their bodies stand in a NAME.body.hpp (config.hpp).
///
/// The inline namespace contains the whole version and the flags that change results. So sources with another version
/// do not link to the library, and with -ffast-math everything is compiled where it is used.
#pragma once

#include <halftone/kernel/attention/cpu.hpp>
#include <halftone/kernel/cache_heads/cpu.hpp>
#include <halftone/kernel/column_sum/cpu.hpp>
#include <halftone/kernel/convert/cpu.hpp>
#include <halftone/kernel/count_nonfinite/cpu.hpp>
#include <halftone/kernel/cross_entropy/cpu.hpp>
#include <halftone/kernel/dropout/cpu.hpp>
#include <halftone/kernel/embedding/cpu.hpp>
#include <halftone/kernel/gradient_norm/cpu.hpp>
#include <halftone/kernel/linear_cross_entropy/cpu.hpp>
#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/kernel/norm/cpu.hpp>
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/cpu.hpp>
#include <halftone/kernel/quantize/cpu.hpp>
#include <halftone/kernel/softmax/cpu.hpp>

#if defined(HALFTONE_COMPILED) && defined(__x86_64__)

// `extern` in every source except the one of the library that compiles these.
#if !defined(HALFTONE_COMPILED_PRODUCTS)
#define HALFTONE_COMPILED_PRODUCTS extern
#endif
#if !defined(HALFTONE_COMPILED_ROWS)
#define HALFTONE_COMPILED_ROWS extern
#endif
#if !defined(HALFTONE_COMPILED_ELEMENTS)
#define HALFTONE_COMPILED_ELEMENTS extern
#endif

#define HALFTONE_INSTANCE(...) template decltype(__VA_ARGS__) __VA_ARGS__
#define HALFTONE_OF_SETS(where, name, ...)                \
    where HALFTONE_INSTANCE(portable::name<__VA_ARGS__>); \
    where HALFTONE_INSTANCE(avx2::name<__VA_ARGS__>);     \
    where HALFTONE_INSTANCE(avx512::name<__VA_ARGS__>)

namespace halftone {
inline namespace HALFTONE_ABI {

// Products, with the packing functions and epilogues of a unit.
#define HALFTONE_PRODUCT(Compute, T)                                               \
    HALFTONE_COMPILED_PRODUCTS HALFTONE_INSTANCE(detail::packing_for<Compute, T>);         \
    HALFTONE_COMPILED_PRODUCTS HALFTONE_INSTANCE(detail::matmul_packing_of_a<Compute, T>); \
    HALFTONE_COMPILED_PRODUCTS HALFTONE_INSTANCE(detail::matmul_packing_of_b<Compute, T>)
HALFTONE_PRODUCT(float, float);
HALFTONE_PRODUCT(float, bfloat16);
HALFTONE_PRODUCT(float, float16);
HALFTONE_PRODUCT(bfloat16, float);
HALFTONE_PRODUCT(bfloat16, bfloat16);
HALFTONE_PRODUCT(bfloat16, float16);
HALFTONE_PRODUCT(bfloat16, float8_e4m3);
HALFTONE_PRODUCT(bfloat16, float8_e5m2);
HALFTONE_PRODUCT(float16, float);
HALFTONE_PRODUCT(float16, bfloat16);
HALFTONE_PRODUCT(float16, float16);
HALFTONE_PRODUCT(tfloat32, float);
#undef HALFTONE_PRODUCT

#define HALFTONE_UNIT(Compute)                                       \
    HALFTONE_COMPILED_PRODUCTS HALFTONE_INSTANCE(detail::unit_for<Compute>); \
    HALFTONE_COMPILED_PRODUCTS HALFTONE_INSTANCE(detail::matmul_unit_for<Compute>)
HALFTONE_UNIT(float);
HALFTONE_UNIT(bfloat16);
HALFTONE_UNIT(float16);
HALFTONE_UNIT(tfloat32);
#undef HALFTONE_UNIT

#define HALFTONE_ATTENTION(Compute, T) \
    HALFTONE_COMPILED_PRODUCTS HALFTONE_INSTANCE(detail::attention_engine_for<Compute, T>)
HALFTONE_ATTENTION(float, float);
HALFTONE_ATTENTION(bfloat16, bfloat16);
HALFTONE_ATTENTION(float16, float16);
HALFTONE_ATTENTION(tfloat32, float);
#undef HALFTONE_ATTENTION

// Row-wise kernels.
#define HALFTONE_NORM(...)                                                            \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, norm_rows, true, __VA_ARGS__);           \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, norm_backward_rows, true, __VA_ARGS__);  \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, norm_rows, false, __VA_ARGS__);          \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, norm_backward_rows, false, __VA_ARGS__)
HALFTONE_NORM(float, float, float);
HALFTONE_NORM(float, float, bfloat16);
HALFTONE_NORM(bfloat16, float, float);
HALFTONE_NORM(bfloat16, float, bfloat16);
HALFTONE_NORM(float, float, float16);
HALFTONE_NORM(float16, float, float16);
#undef HALFTONE_NORM

#define HALFTONE_SOFTMAX(...)                                                     \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, softmax_rows, __VA_ARGS__);          \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, softmax_backward_rows, __VA_ARGS__); \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, log_softmax_rows, __VA_ARGS__);      \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, log_softmax_backward_rows, __VA_ARGS__)
HALFTONE_SOFTMAX(float, float);
HALFTONE_SOFTMAX(bfloat16, float);
HALFTONE_SOFTMAX(bfloat16, bfloat16);
HALFTONE_SOFTMAX(float16, float);
#undef HALFTONE_SOFTMAX

#define HALFTONE_LOSS(X)                                                         \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, cross_entropy_rows, X);             \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, cross_entropy_backward_rows, X, X); \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, sum_exponentials, X);               \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, logits_to_gradients, X);            \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, logits_to_gradients_across, X);     \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, round_sums, X);                     \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, column_sum_rows, X)
HALFTONE_LOSS(float);
HALFTONE_LOSS(bfloat16);
HALFTONE_LOSS(float16);
#undef HALFTONE_LOSS

#define HALFTONE_EMBEDDING(Y, G)                                               \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, embedding_backward_tokens, Y, G); \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, embedding_backward_positions, Y, G)
HALFTONE_EMBEDDING(float, float);
HALFTONE_EMBEDDING(bfloat16, float);
HALFTONE_EMBEDDING(float16, float);
#undef HALFTONE_EMBEDDING
HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, embedding_rows, float, float);
HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, embedding_rows, bfloat16, float);
HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, embedding_rows, bfloat16, bfloat16);
HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, embedding_rows, float16, float);
HALFTONE_OF_SETS(HALFTONE_COMPILED_ROWS, embedding_rows, float16, float16);

// The functions that partition their work.
#define HALFTONE_ROWS_OF(X)                                                                                       \
    HALFTONE_COMPILED_ROWS template void kernel::layer_norm<cpu>::forward(                                        \
        cpu&, const kernel::layer_norm_forward<X, float, X>&);                                                    \
    HALFTONE_COMPILED_ROWS template void kernel::layer_norm<cpu>::backward(                                       \
        cpu&, const kernel::layer_norm_backward<X, float, X, float>&);                                            \
    HALFTONE_COMPILED_ROWS template void kernel::embedding<cpu>::forward(cpu&,                                    \
                                                                         const kernel::embedding_forward<X, X>&); \
    HALFTONE_COMPILED_ROWS template void kernel::embedding<cpu>::backward(                                        \
        cpu&, const kernel::embedding_backward<X, float>&);                                                       \
    HALFTONE_COMPILED_ROWS template void kernel::linear_cross_entropy<cpu>::forward<X, X, X, X>(                  \
        cpu&, const const_view<X, 2>&, const const_view<X, 2>&, const kernel::linear_cross_entropy_rows&, X*);    \
    HALFTONE_COMPILED_ROWS template void kernel::linear_cross_entropy<cpu>::backward<X, X, X, X, X, X, float>(    \
        cpu&, const const_view<X, 2>&, const const_view<X, 2>&, const kernel::linear_cross_entropy_rows&,         \
        const const_view<float, 1>&, const kernel::gradient_result<X>&, const kernel::gradient_result<float>&, X*)
HALFTONE_ROWS_OF(float);
HALFTONE_ROWS_OF(bfloat16);
HALFTONE_ROWS_OF(float16);
#undef HALFTONE_ROWS_OF
// Those that begin a residual stream in float, and that read it.
#define HALFTONE_STREAM_OF(X)                                                                                         \
    HALFTONE_COMPILED_ROWS template void kernel::layer_norm<cpu>::forward(                                            \
        cpu&, const kernel::layer_norm_forward<float, float, X>&);                                                    \
    HALFTONE_COMPILED_ROWS template void kernel::layer_norm<cpu>::backward(                                           \
        cpu&, const kernel::layer_norm_backward<float, float, X, float>&);                                            \
    HALFTONE_COMPILED_ROWS template void kernel::embedding<cpu>::forward(cpu&,                                        \
                                                                         const kernel::embedding_forward<X, float>&)
HALFTONE_STREAM_OF(bfloat16);
HALFTONE_STREAM_OF(float16);
#undef HALFTONE_STREAM_OF

// Elementwise kernels.
#define HALFTONE_UPDATE(Param, Copy)                                                                                   \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ELEMENTS, optimizer_step_elements, kernel::adamw_rule, true,                    \
                     rounding::nearest_even, rounding::nearest_even, Param, Copy, float, float);                       \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ELEMENTS, eight_bit_step_elements, kernel::adamw_rule, rounding::nearest_even,  \
                     rounding::nearest_even, Param, Copy, float);                                                      \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ELEMENTS, optimizer_step_elements, kernel::sgd_rule, true,                      \
                     rounding::nearest_even, rounding::nearest_even, Param, Copy, float, float);                       \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ELEMENTS, optimizer_step_elements, kernel::sgd_rule, false,                     \
                     rounding::nearest_even, rounding::nearest_even, Param, Copy, float, float)
HALFTONE_UPDATE(float, float);
HALFTONE_UPDATE(float, bfloat16);
HALFTONE_UPDATE(float, float16);
#undef HALFTONE_UPDATE

#define HALFTONE_GRADIENTS(G)                                          \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ELEMENTS, gradient_squares, G); \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ELEMENTS, chunk_magnitude, G);  \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ELEMENTS, add_partials, G)
HALFTONE_GRADIENTS(float);
HALFTONE_GRADIENTS(bfloat16);
HALFTONE_GRADIENTS(float16);
#undef HALFTONE_GRADIENTS

#define HALFTONE_CONVERSION(X, Y)                                            \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ELEMENTS, convert_rows, false, X, Y); \
    HALFTONE_OF_SETS(HALFTONE_COMPILED_ELEMENTS, dropout_elements, X, Y)
HALFTONE_CONVERSION(float, float);
HALFTONE_CONVERSION(float, bfloat16);
HALFTONE_CONVERSION(float, float16);
HALFTONE_CONVERSION(bfloat16, float);
HALFTONE_CONVERSION(bfloat16, bfloat16);
HALFTONE_CONVERSION(float16, float);
HALFTONE_CONVERSION(float16, float16);
#undef HALFTONE_CONVERSION

HALFTONE_OF_SETS(HALFTONE_COMPILED_ELEMENTS, quantize_piece, bfloat16, float8_e4m3);
HALFTONE_OF_SETS(HALFTONE_COMPILED_ELEMENTS, quantize_piece, bfloat16, float8_e5m2);

}  // namespace HALFTONE_ABI
}  // namespace halftone

#undef HALFTONE_INSTANCE
#undef HALFTONE_OF_SETS
#undef HALFTONE_COMPILED_PRODUCTS
#undef HALFTONE_COMPILED_ROWS
#undef HALFTONE_COMPILED_ELEMENTS

#endif
