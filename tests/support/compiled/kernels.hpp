// SPDX-License-Identifier: MIT
/// \file
/// The CPU's kernels for the types that policies give them, which the files beside this one compile once for all test programs:
/// a source that includes this, at its end at the latest, does not compile them again. Types that are missing here only cost
/// time: they are compiled where they are used.
#pragma once

#include <halftone/kernel.hpp>

#if defined(__x86_64__)

// `extern`, or nothing in the file that compiles them.
#if !defined(TEST_PRODUCTS)
#define TEST_PRODUCTS extern
#endif
#if !defined(TEST_ROWS)
#define TEST_ROWS extern
#endif
#if !defined(TEST_ELEMENTS)
#define TEST_ELEMENTS extern
#endif

#define TEST_KERNEL(...) template decltype(__VA_ARGS__) __VA_ARGS__
#define TEST_KERNEL_OF_SETS(where, name, ...)        \
    where TEST_KERNEL(portable::name<__VA_ARGS__>);  \
    where TEST_KERNEL(avx2::name<__VA_ARGS__>);      \
    where TEST_KERNEL(avx512::name<__VA_ARGS__>)

namespace halftone {
inline namespace HALFTONE_ABI {

// Products, with all that a unit and its packing call.
#define TEST_PRODUCT(Compute, T)                          \
    TEST_PRODUCTS TEST_KERNEL(packing_for<Compute, T>);   \
    TEST_PRODUCTS TEST_KERNEL(matmul_packing_for<Compute, T>)
TEST_PRODUCT(float, float);
TEST_PRODUCT(float, bfloat16);
TEST_PRODUCT(float, float16);
TEST_PRODUCT(bfloat16, float);
TEST_PRODUCT(bfloat16, bfloat16);
TEST_PRODUCT(bfloat16, float16);
TEST_PRODUCT(bfloat16, float8_e4m3);
TEST_PRODUCT(bfloat16, float8_e5m2);
TEST_PRODUCT(float16, float);
TEST_PRODUCT(float16, bfloat16);
TEST_PRODUCT(float16, float16);
TEST_PRODUCT(tfloat32, float);
#undef TEST_PRODUCT

#define TEST_UNIT(Compute)                         \
    TEST_PRODUCTS TEST_KERNEL(unit_for<Compute>);  \
    TEST_PRODUCTS TEST_KERNEL(matmul_unit_for<Compute>)
TEST_UNIT(float);
TEST_UNIT(bfloat16);
TEST_UNIT(float16);
TEST_UNIT(tfloat32);
#undef TEST_UNIT

#define TEST_ATTENTION(Compute, T) TEST_PRODUCTS TEST_KERNEL(detail::attention_engine_for<Compute, T>)
TEST_ATTENTION(float, float);
TEST_ATTENTION(bfloat16, bfloat16);
TEST_ATTENTION(float16, float16);
TEST_ATTENTION(tfloat32, float);
#undef TEST_ATTENTION

// Rows.
#define TEST_NORM(...)                                                      \
    TEST_KERNEL_OF_SETS(TEST_ROWS, norm_rows, true, __VA_ARGS__);           \
    TEST_KERNEL_OF_SETS(TEST_ROWS, norm_backward_rows, true, __VA_ARGS__);  \
    TEST_KERNEL_OF_SETS(TEST_ROWS, norm_rows, false, __VA_ARGS__);          \
    TEST_KERNEL_OF_SETS(TEST_ROWS, norm_backward_rows, false, __VA_ARGS__)
TEST_NORM(float, float, float);
TEST_NORM(float, float, bfloat16);
TEST_NORM(bfloat16, float, float);
TEST_NORM(bfloat16, float, bfloat16);
TEST_NORM(float16, float, float16);
#undef TEST_NORM

#define TEST_SOFTMAX(...)                                                  \
    TEST_KERNEL_OF_SETS(TEST_ROWS, softmax_rows, __VA_ARGS__);             \
    TEST_KERNEL_OF_SETS(TEST_ROWS, softmax_backward_rows, __VA_ARGS__);    \
    TEST_KERNEL_OF_SETS(TEST_ROWS, log_softmax_rows, __VA_ARGS__);         \
    TEST_KERNEL_OF_SETS(TEST_ROWS, log_softmax_backward_rows, __VA_ARGS__)
TEST_SOFTMAX(float, float);
TEST_SOFTMAX(bfloat16, float);
TEST_SOFTMAX(bfloat16, bfloat16);
TEST_SOFTMAX(float16, float);
#undef TEST_SOFTMAX

#define TEST_LOSS(X)                                                      \
    TEST_KERNEL_OF_SETS(TEST_ROWS, cross_entropy_rows, X);                \
    TEST_KERNEL_OF_SETS(TEST_ROWS, cross_entropy_backward_rows, X, X);    \
    TEST_KERNEL_OF_SETS(TEST_ROWS, sum_exponentials, X);                  \
    TEST_KERNEL_OF_SETS(TEST_ROWS, logits_to_gradients, X);               \
    TEST_KERNEL_OF_SETS(TEST_ROWS, logits_to_gradients_across, X);        \
    TEST_KERNEL_OF_SETS(TEST_ROWS, round_sums, X);                        \
    TEST_KERNEL_OF_SETS(TEST_ROWS, column_sum_rows, X)
TEST_LOSS(float);
TEST_LOSS(bfloat16);
TEST_LOSS(float16);
#undef TEST_LOSS

#define TEST_EMBEDDING(Y, G)                                               \
    TEST_KERNEL_OF_SETS(TEST_ROWS, embedding_backward_tokens, Y, G);       \
    TEST_KERNEL_OF_SETS(TEST_ROWS, embedding_backward_positions, Y, G)
TEST_EMBEDDING(float, float);
TEST_EMBEDDING(bfloat16, float);
TEST_EMBEDDING(float16, float);
#undef TEST_EMBEDDING
TEST_KERNEL_OF_SETS(TEST_ROWS, embedding_rows, float, float);
TEST_KERNEL_OF_SETS(TEST_ROWS, embedding_rows, bfloat16, bfloat16);
TEST_KERNEL_OF_SETS(TEST_ROWS, embedding_rows, float16, float16);

// Elements.
#define TEST_UPDATE(Param, Copy)                                                                                          \
    TEST_KERNEL_OF_SETS(TEST_ELEMENTS, optimizer_step_elements, kernel::adamw_rule, true, rounding::nearest_even,         \
                        rounding::nearest_even, Param, Copy, float, float);                                               \
    TEST_KERNEL_OF_SETS(TEST_ELEMENTS, optimizer_step_elements, kernel::sgd_rule, true, rounding::nearest_even,           \
                        rounding::nearest_even, Param, Copy, float, float);                                               \
    TEST_KERNEL_OF_SETS(TEST_ELEMENTS, optimizer_step_elements, kernel::sgd_rule, false, rounding::nearest_even,          \
                        rounding::nearest_even, Param, Copy, float, float)
TEST_UPDATE(float, float);
TEST_UPDATE(float, bfloat16);
TEST_UPDATE(float, float16);
#undef TEST_UPDATE

#define TEST_GRADIENTS(G)                                        \
    TEST_KERNEL_OF_SETS(TEST_ELEMENTS, gradient_squares, G);     \
    TEST_KERNEL_OF_SETS(TEST_ELEMENTS, chunk_magnitude, G);      \
    TEST_KERNEL_OF_SETS(TEST_ELEMENTS, add_partials, G)
TEST_GRADIENTS(float);
TEST_GRADIENTS(bfloat16);
TEST_GRADIENTS(float16);
#undef TEST_GRADIENTS

#define TEST_CONVERSION(X, Y)                                                            \
    TEST_ELEMENTS TEST_KERNEL(portable::convert_rows<portable::converts_on, X, Y>);      \
    TEST_ELEMENTS TEST_KERNEL(avx2::convert_rows<avx2::converts_on, X, Y>);              \
    TEST_ELEMENTS TEST_KERNEL(avx512::convert_rows<avx512::converts_on, X, Y>);          \
    TEST_KERNEL_OF_SETS(TEST_ELEMENTS, dropout_elements, X, Y)
TEST_CONVERSION(float, float);
TEST_CONVERSION(float, bfloat16);
TEST_CONVERSION(float, float16);
TEST_CONVERSION(bfloat16, float);
TEST_CONVERSION(bfloat16, bfloat16);
TEST_CONVERSION(float16, float);
TEST_CONVERSION(float16, float16);
#undef TEST_CONVERSION

TEST_KERNEL_OF_SETS(TEST_ELEMENTS, quantize_piece, bfloat16, float8_e4m3);
TEST_KERNEL_OF_SETS(TEST_ELEMENTS, quantize_piece, bfloat16, float8_e5m2);

}  // namespace HALFTONE_ABI
}  // namespace halftone

#endif
