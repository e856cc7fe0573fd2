// SPDX-License-Identifier: MIT
/// \file
/// What may multiply matrices in place of halftone's own kernels, such as a vendor's library, behind a small interface.
///
///     ht::cuda device;
///     device.use(ht::cublaslt{});        // exec/cuda/cublaslt.cuh
///
/// A device that holds an engine asks it for products whose operands have the compute type already, floats for
/// tfloat32, and for products of operands of eight bits, which such a type multiplies exactly. A table of the engine's
/// says where it is the faster one; engine_use, and before it the environment's HALFTONE_MATMUL (halftone, or the
/// engine's name), can say always or never instead. The choice follows from shapes, types and the device's model alone.
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

/// The element types that engines know. Operands of tfloat32 are floats in memory, of which products read 19 bits. Of a
/// product float8_e5m2 is the type of a alone, b's is float8_e4m3 then: what the gradients of linear layers read.
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
/// Whether it is one of the two types of eight bits.
constexpr bool is_eight_bit(element_type t) { return t == element_type::float8_e4m3 || t == element_type::float8_e5m2; }

/// Which lines of a matrix are contiguous.
enum class matrix_order { rows, columns };
/// What becomes of an engine's sums: they are the result, or a kernel of halftone's reads them once more.
enum class product_end { result, kernel };

/// c = p q ab + beta c, p and q factors of eight-bit operands, else 1: a (m, k), b (k, n), c (m, n) with contiguous
/// rows. Leading: elements from line to line.
struct product_description {
    extent m, n, k;
    const void *a, *b;
    extent a_leading, b_leading;
    matrix_order a_order, b_order;
    element_type operands;  // of a and b, and what is multiplied
    void* c;
    extent c_leading;
    element_type result;
    float beta;  // 0, or 1 where the result is of floats
    product_end end;
    const float *a_factor = nullptr, *b_factor = nullptr;  // p and q, in the device's memory; nullptr: 1
};

/// What multiplies in place of halftone's kernels. An engine belongs to one device.
class matmul_engine {
  public:
    matmul_engine() = default;
    matmul_engine(const matmul_engine&) = delete;
    matmul_engine& operator=(const matmul_engine&) = delete;
    virtual ~matmul_engine() = default;

    /// How HALFTONE_MATMUL and messages call it.
    virtual const char* name() const = 0;
    /// Whether it can, at all. Pointers count by their alignment.
    virtual bool can(const product_description&) = 0;
    /// Whether its table says that it is faster than halftone's kernels.
    virtual bool prefers(const product_description&) const = 0;
    /// One that it can: sums in float, rounded once, in order with the device's other work.
    virtual void multiply(const product_description&, workspace&) = 0;
    /// What multiply will take of the workspace.
    virtual std::size_t workspace_bytes(const product_description&) = 0;
};

/// When a device asks its engine: where its table says that it is faster, wherever it can, or not at all.
enum class engine_use { by_table, always, never };

namespace detail {

/// The engine that a device holds, and when it is asked.
class engine_slot {
  public:
    explicit engine_slot(engine_use wish = engine_use::by_table) : use_(wish) {
        if (const char* name = std::getenv("HALFTONE_MATMUL"); name != nullptr && *name != '\0') {
            use_ = std::strcmp(name, "halftone") == 0 ? engine_use::never : engine_use::always;
            if (use_ == engine_use::always) asked_for_ = name;
        }
    }

    /// The engine from now on; nullptr: none.
    void hold(std::unique_ptr<matmul_engine> engine) { engine_ = std::move(engine); }

    /// The engine, where it is to multiply this. Throws argument_error where the environment asks for another one.
    matmul_engine* engine_for(const product_description& p) const {
        if (asked_for_ != nullptr && (engine_ == nullptr || std::strcmp(asked_for_, engine_->name()) != 0)) {
            fail<argument_error>("matmul: HALFTONE_MATMUL asks for ", asked_for_, "; this device has ",
                                 engine_ == nullptr ? "no engine" : engine_->name(), " beside halftone");
        }
        if (engine_ == nullptr || use_ == engine_use::never) return nullptr;
        return (use_ == engine_use::always || engine_->prefers(p)) && engine_->can(p) ? engine_.get() : nullptr;
    }

  private:
    engine_use use_;
    const char* asked_for_ = nullptr;
    std::unique_ptr<matmul_engine> engine_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
