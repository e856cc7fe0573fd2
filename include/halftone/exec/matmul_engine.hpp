// SPDX-License-Identifier: MIT
/// \file
/// The interface of an engine: a library, such as cuBLASLt, that multiplies matrices in place of halftone's own
/// kernels.
///
///     ht::cuda device;
///     device.use(ht::cublaslt{});        // exec/cuda/cublaslt.cuh
///
/// A device with an engine offers it products whose operands have the compute type already (floats for tfloat32), and
/// products of 8-bit operands, which are exact in any compute type. The engine's table decides for which of them it is
/// faster; engine_use, or the environment's HALFTONE_MATMUL (halftone, or the engine's name), can force either choice.
/// The choice depends only on shapes, types and the device's model.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include <halftone/error.hpp>
#include <halftone/exec/workspace.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/float8.hpp>
#include <halftone/number/tfloat32.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The element types that engines know. tfloat32 operands are stored as floats, of which products read 19 bits.
/// float8_e5m2 can be the type of a only, with float8_e4m3 as b's: the operands of linear layers' gradients.
enum class element_type { float32, bfloat16, float16, tfloat32, float8_e4m3, float8_e5m2 };

/// Whether engines know the element type T.
template <class T>
inline constexpr bool has_element_type = false;
template <>
inline constexpr bool has_element_type<float> = true;
template <>
inline constexpr bool has_element_type<bfloat16> = true;
template <>
inline constexpr bool has_element_type<float16> = true;
template <>
inline constexpr bool has_element_type<tfloat32> = true;
template <>
inline constexpr bool has_element_type<float8_e4m3> = true;
template <>
inline constexpr bool has_element_type<float8_e5m2> = true;

/// The enumerator of T.
template <class T>
constexpr element_type element_type_of() {
    static_assert(has_element_type<T>);
    return std::is_same_v<T, float>         ? element_type::float32
           : std::is_same_v<T, bfloat16>    ? element_type::bfloat16
           : std::is_same_v<T, float16>     ? element_type::float16
           : std::is_same_v<T, float8_e4m3> ? element_type::float8_e4m3
           : std::is_same_v<T, float8_e5m2> ? element_type::float8_e5m2
                                            : element_type::tfloat32;
}
/// Whether it is one of the two 8-bit types.
constexpr bool is_eight_bit(element_type t) { return t == element_type::float8_e4m3 || t == element_type::float8_e5m2; }

/// Which axis of a matrix is contiguous: its rows (row-major) or its columns (column-major).
enum class matrix_order { rows, columns };
/// What an engine's sums are: the final result, or input of a kernel of halftone's that applies the epilogue.
enum class product_end { result, kernel };

/// c = p q ab + beta c, where p and q are the factors of 8-bit operands, otherwise 1: a (m, k), b (k, n), c (m, n)
/// row-major. A leading dimension is in elements.
struct product_description {
    extent m, n, k;
    const void *a, *b;
    extent a_leading, b_leading;
    matrix_order a_order, b_order;
    element_type operands;  // element type of a and b
    void* c;
    extent c_leading;
    element_type result;
    float beta;  // 0; or 1 if the result is float
    product_end end;
    const float *a_factor = nullptr, *b_factor = nullptr;  // p and q, in the device's memory; nullptr: 1
};

/// A library that multiplies in place of halftone's kernels. An engine belongs to one device.
class matmul_engine {
  public:
    matmul_engine() {}  // not defaulted: halftone::compiled has only functions that are written or used there
    matmul_engine(const matmul_engine&) = delete;
    matmul_engine& operator=(const matmul_engine&) = delete;
    virtual ~matmul_engine() = default;

    /// The engine's name in HALFTONE_MATMUL and in messages.
    virtual const char* name() const = 0;
    /// Whether the engine can compute this product at all. Pointers matter by their alignment only.
    virtual bool can(const product_description&) = 0;
    /// Whether the engine's table says that it is faster than halftone's kernels.
    virtual bool prefers(const product_description&) const = 0;
    /// Computes a product that can() accepts: sums in float, rounded once, in order with the device's other work.
    virtual void multiply(const product_description&, workspace&) = 0;
    /// Bytes of the workspace that multiply will use.
    virtual std::size_t workspace_bytes(const product_description&) = 0;
};

/// When a device uses its engine: where the engine's table says that it is faster, wherever it can, or never.
enum class engine_use { by_table, always, never };

namespace detail {

/// A device's engine, and when it is used.
class engine_slot {
  public:
    explicit engine_slot(engine_use use = engine_use::by_table);

    /// Sets the engine; nullptr: none.
    void hold(std::unique_ptr<matmul_engine> engine) { engine_ = std::move(engine); }

    /// The engine, if it is to compute this product. Throws argument_error if HALFTONE_MATMUL names another engine.
    matmul_engine* engine_for(const product_description& p) const;

  private:
    engine_use use_;
    const char* asked_for_ = nullptr;
    std::unique_ptr<matmul_engine> engine_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/exec/matmul_engine.body.hpp>
#endif
