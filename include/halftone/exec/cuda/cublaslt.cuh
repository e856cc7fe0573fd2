// SPDX-License-Identifier: MIT
/// \file
/// NVIDIA's cuBLASLt as the engine of a GPU's products. A program that includes this header links with -lcublasLt.
///
///     ht::cuda device{{.engine = ht::cublaslt{}}};        // or later: device.use(ht::cublaslt{});
///
/// Numeric contract: sums are float, also those over parts of k, and rounded once. Their order follows from shape,
/// types, alignment and the GPU's model. Floats are multiplied as floats; TF32 is used only under the compute type
/// tfloat32, for which cuBLASLt may truncate operands where halftone's kernels round. The algorithm that cuBLASLt
/// chooses is looked up once for each shape and cached. A table (exec/matmul_table.hpp) decides which products go to
/// cuBLASLt.
///
/// 8-bit operands are multiplied from sm_89 on: float8_e4m3 and, for a, float8_e5m2, with k and leading dimensions a
/// multiple of 16 and, on most GPUs, both operands contiguous along k. Never in cuBLASLt's mode of fast accumulation,
/// which truncates the sums.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <tuple>

#include <halftone/exec/cuda/cuda.cuh>
#include <halftone/exec/matmul_engine.hpp>
#include <halftone/exec/matmul_table.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

inline void cublaslt_check(cublasStatus_t code, const char* call, const char* file = __builtin_FILE(),
                           int line = __builtin_LINE()) {
    if (code == CUBLAS_STATUS_SUCCESS) return;
    const std::string place(file);
    fail<cuda_error>("cublaslt: ", call, " gave ", cublasLtGetStatusName(code), " (", cublasLtGetStatusString(code),
                     ") at ", place.substr(place.rfind('/') + 1), ":", line);
}

class cublaslt_engine final : public matmul_engine {
  public:
    cublaslt_engine(std::size_t most_workspace, matmul_table table, cudaStream_t stream,
                    const cudaDeviceProp& properties)
        : most_workspace_(most_workspace),
          table_(std::move(table)),
          stream_(stream),
          architecture_(10 * properties.major + properties.minor) {
        if (!table_.products().empty() && table_.architecture() != architecture_) {
            fail<argument_error>("cublaslt: the matmul table ", table_.name(), " was measured on an sm_",
                                 table_.architecture(), ", and ", properties.name, " is an sm_", architecture_);
        }
        device_ = current_device_number();
        cublaslt_check(cublasLtCreate(&handle_), "cublasLtCreate");
    }
    ~cublaslt_engine() override {
        const current_device here(device_);
        cublasLtDestroy(handle_);
    }

    const char* name() const override { return "cublaslt"; }
    bool can(const product_description& p) override { return plan_for(p).is_possible; }
    // Without a measured table the choice is estimated from peaks and bandwidths. halftone's kernels multiply by
    // mma.sync, which reaches the full rate on sm_80 to sm_89 and about two thirds of it on Hopper and Blackwell,
    // except for 16-bit types in code for sm_90a (wgmma). On such GPUs cuBLASLt is faster from a k of about 1200 on,
    // even if its float sums must be written and read again (8 bytes an element) by a separate kernel for the epilogue.
    bool prefers(const product_description& p) const override {
        if (const std::optional<bool> measured = table_.prefers_engine(p)) return *measured;
        return p.end == product_end::result || (architecture_ >= 90 && p.k >= 1200);
    }
    std::size_t workspace_bytes(const product_description& p) override { return plan_for(p).workspace_bytes; }
    void multiply(const product_description& p, workspace& scratch) override {
        const current_device here(device_);
        plan& chosen = plan_for(p);
        const workspace::lease space(scratch, chosen.workspace_bytes);
        if (is_eight_bit(p.operands)) set_factors(chosen.operation, p);
        const float one = 1;
        cublaslt_check(
            cublasLtMatmul(handle_, &chosen.operation, &one, p.b, &chosen.b, p.a, &chosen.a, &p.beta, p.c, &chosen.c,
                           p.c, &chosen.c, &chosen.algorithm, space.data(), chosen.workspace_bytes, stream_),
            "cublasLtMatmul");
    }

  private:
    struct plan {
        bool is_possible = false;
        cublasLtMatmulDescOpaque_t operation;
        cublasLtMatrixLayoutOpaque_t a, b, c;
        cublasLtMatmulAlgo_t algorithm;
        std::size_t workspace_bytes = 0;
    };
    using key = std::tuple<extent, extent, extent, extent, extent, extent, matrix_order, matrix_order, element_type,
                           element_type, float, std::uint32_t, std::uint32_t, std::uint32_t, bool, bool>;

    static cudaDataType type_of(element_type t) {
        switch (t) {
            case element_type::bfloat16: return CUDA_R_16BF;
            case element_type::float16: return CUDA_R_16F;
            case element_type::float8_e4m3: return CUDA_R_8F_E4M3;
            case element_type::float8_e5m2: return CUDA_R_8F_E5M2;
            default: return CUDA_R_32F;
        }
    }
    static void set_attribute(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t what,
                              const auto& value) {
        cublaslt_check(cublasLtMatmulDescSetAttribute(&operation, what, &value, sizeof value),
                       "cublasLtMatmulDescSetAttribute");
    }
    // cuBLASLt's first operand is our b.
    static void set_factors(cublasLtMatmulDescOpaque_t& operation, const product_description& p) {
        set_attribute(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.b_factor);
        set_attribute(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.a_factor);
    }
    /// The largest power of two, at most 256, that divides the address.
    static std::uint32_t alignment_of(const void* p) {
        const auto address = reinterpret_cast<std::uintptr_t>(p);
        std::uint32_t bytes = 256;
        while (address % bytes != 0) bytes /= 2;
        return bytes;
    }

    plan& plan_for(const product_description& p) {
        const key k{
            p.m,       p.n,        p.k,      p.a_leading, p.b_leading,       p.c_leading,       p.a_order,
            p.b_order, p.operands, p.result, p.beta,      alignment_of(p.a), alignment_of(p.b), alignment_of(p.c),
            p.a_factor != nullptr, p.b_factor != nullptr};
        const auto [place, is_new] = plans_.try_emplace(k);
        if (is_new) {
            const current_device here(device_);
            make(p, place->second);
        }
        return place->second;
    }

    // cuBLAS is column-major: our row-major c is its c transposed, computed as c' = b' a'. An operand of row order is
    // in memory as its transpose already.
    void make(const product_description& p, plan& to) {
        if (is_eight_bit(p.operands) && architecture_ < 89) return;
        const auto layout = [&](cublasLtMatrixLayoutOpaque_t& l, element_type type, extent rows, extent columns,
                                extent leading, matrix_order order) {
            const extent lines = order == matrix_order::rows ? rows : columns,
                         length = order == matrix_order::rows ? columns : rows;
            cublaslt_check(cublasLtMatrixLayoutInit(&l, type_of(type), static_cast<std::uint64_t>(length),
                                                    static_cast<std::uint64_t>(lines), leading),
                           "cublasLtMatrixLayoutInit");
        };
        layout(to.a, p.operands, p.m, p.k, p.a_leading, p.a_order);
        layout(to.b, p.operands == element_type::float8_e5m2 ? element_type::float8_e4m3 : p.operands, p.k, p.n,
               p.b_leading, p.b_order);
        layout(to.c, p.result, p.m, p.n, p.c_leading, matrix_order::rows);

        cublaslt_check(
            cublasLtMatmulDescInit(
                &to.operation, p.operands == element_type::tfloat32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                CUDA_R_32F),
            "cublasLtMatmulDescInit");
        const auto operation_of = [](matrix_order order) {
            return order == matrix_order::rows ? CUBLAS_OP_N : CUBLAS_OP_T;
        };
        set_attribute(to.operation, CUBLASLT_MATMUL_DESC_TRANSA, operation_of(p.b_order));
        set_attribute(to.operation, CUBLASLT_MATMUL_DESC_TRANSB, operation_of(p.a_order));
        if (is_eight_bit(p.operands)) set_factors(to.operation, p);

        cublasLtMatmulPreferenceOpaque_t preference;
        cublaslt_check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
        const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
            cublaslt_check(cublasLtMatmulPreferenceSetAttribute(&preference, what, &value, sizeof value),
                           "cublasLtMatmulPreferenceSetAttribute");
        };
        prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(most_workspace_));
        prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
               static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));  // or no reduction
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b));
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a));
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c));
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c));

        cublasLtMatmulHeuristicResult_t found{};
        int count = 0;
        const cublasStatus_t code = cublasLtMatmulAlgoGetHeuristic(handle_, &to.operation, &to.b, &to.a, &to.c, &to.c,
                                                                   &preference, 1, &found, &count);
        if (code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_INVALID_VALUE) return;
        cublaslt_check(code, "cublasLtMatmulAlgoGetHeuristic");
        if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS) return;
        to.algorithm = found.algo;
        to.workspace_bytes = found.workspaceSize;
        to.is_possible = true;
    }

    std::size_t most_workspace_;
    matmul_table table_;
    cudaStream_t stream_;
    int architecture_, device_ = 0;
    cublasLtHandle_t handle_ = nullptr;
    std::map<key, plan> plans_;
};

}  // namespace detail

/// The value that names this engine; see any_matmul_engine.
struct cublaslt {
    std::size_t most_workspace = std::size_t{32}
                                 << 20;  ///< bytes of the context's workspace that an algorithm may use
    matmul_table table{};  ///< measured products, which decide; empty: an estimate decides

    /// Throws argument_error for a table of another architecture.
    std::unique_ptr<matmul_engine> start(cudaStream_t stream, const cudaDeviceProp& properties) const {
        return std::make_unique<detail::cublaslt_engine>(most_workspace, table, stream, properties);
    }
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
