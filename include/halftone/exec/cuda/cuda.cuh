// SPDX-License-Identifier: MIT
/// \file
/// An NVIDIA GPU as a device: one stream of it, and the memory that its work needs.
///
///     ht::cuda device;                                  // the present GPU, a stream of its own
///     ht::cuda gpu{stream};                             // yours, which it borrows
///     ht::cuda other{{.device = 1, .memory_limit = std::size_t{8} << 30}};
///
/// A context serves one stream and one thread at a time; several contexts live side by side, and nothing is static. No call
/// waits for the GPU but those that say so: memory().read and write, synchronize.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

#include <halftone/exec/cuda/memory.cuh>
#include <halftone/exec/cuda/staging.cuh>
#include <halftone/exec/cuda/thread.cuh>
#include <halftone/exec/matmul_engine.hpp>
#include <halftone/exec/simt/architecture.hpp>
#include <halftone/exec/workspace.hpp>

namespace halftone::inline HALFTONE_ABI {

/// A value that starts an engine for a context's products: nothing, or a ht::cublaslt (exec/cuda/cublaslt.cuh).
class any_matmul_engine {
  public:
    any_matmul_engine() = default;
    template <class Engine>
        requires requires(const Engine& e, const cudaDeviceProp& properties) { e.start(cudaStream_t{}, properties); }
    any_matmul_engine(const Engine& engine) : how_(std::make_shared<const starter_of<Engine>>(engine)) {}  // NOLINT(google-explicit-constructor)

    /// nullptr: none.
    std::unique_ptr<matmul_engine> start(cudaStream_t stream, const cudaDeviceProp& properties) const {
        return how_ == nullptr ? nullptr : how_->start(stream, properties);
    }

  private:
    struct starter {
        virtual ~starter() = default;
        virtual std::unique_ptr<matmul_engine> start(cudaStream_t, const cudaDeviceProp&) const = 0;
    };
    template <class Engine>
    struct starter_of final : starter {
        explicit starter_of(const Engine& e) : engine(e) {}
        std::unique_ptr<matmul_engine> start(cudaStream_t stream, const cudaDeviceProp& properties) const override { return engine.start(stream, properties); }
        Engine engine;
    };
    std::shared_ptr<const starter> how_;
};

struct cuda_options {
    int device = -1;                                          ///< -1: the present one (cudaGetDevice)
    cudaStream_t stream = nullptr;                            ///< none: a stream of its own
    std::size_t memory_limit = static_cast<std::size_t>(-1);  ///< bytes that this context may hold
    any_matmul_engine engine{};                               ///< multiplies beside halftone's kernels
    engine_use engine_is_used = engine_use::by_table;         ///< HALFTONE_MATMUL in the environment goes before it
};

namespace detail {

/// A stream, owned or borrowed.
class cuda_stream {
  public:
    explicit cuda_stream(const cuda_options& o) : device_(o.device), stream_(o.stream) {
        int count = 0;
        cuda_check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
        if (device_ < 0) cuda_check(cudaGetDevice(&device_), "cudaGetDevice");
        if (device_ >= count) fail<argument_error>("cuda: device ", device_, "; there are ", count);
        cuda_check(cudaGetDeviceProperties(&properties_, device_), "cudaGetDeviceProperties");
        if (properties_.major < 8) fail<argument_error>("cuda: ", properties_.name, " is of architecture ", properties_.major, ".", properties_.minor, "; halftone's kernels need 8.0 or newer");
        cuda_check(cudaSetDevice(device_), "cudaSetDevice");
        if (stream_ == nullptr) {
            cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
            is_owned_ = true;
        }
    }
    cuda_stream(const cuda_stream&) = delete;
    cuda_stream& operator=(const cuda_stream&) = delete;
    ~cuda_stream() {
        if (is_owned_) cudaStreamDestroy(stream_);
    }

    int device() const { return device_; }
    cudaStream_t get() const { return stream_; }
    const cudaDeviceProp& properties() const { return properties_; }

  private:
    int device_;
    cudaStream_t stream_;
    cudaDeviceProp properties_{};
    bool is_owned_ = false;
};

}  // namespace detail

class cuda {
  public:
    static constexpr bool runs_simt_kernels = true;

    /// Throws cuda_error where there is no usable GPU, argument_error for a device that is not there or too old.
    explicit cuda(const cuda_options& options = {})
        : stream_(options), memory_(stream_.get(), options.memory_limit), workspace_(memory_), engines_(options.engine_is_used) {
        use(options.engine);
    }
    explicit cuda(cudaStream_t stream) : cuda(cuda_options{.stream = stream}) {}
    cuda(const cuda&) = delete;
    cuda& operator=(const cuda&) = delete;

    cudaStream_t stream() const { return stream_.get(); }
    const cudaDeviceProp& properties() const { return stream_.properties(); }
    simt::architecture architecture() const {
        return {10 * properties().major + properties().minor, static_cast<int>(properties().sharedMemPerBlockOptin)};
    }
    /// For people: "cuda, NVIDIA H200".
    std::string description() const { return detail::sentence("cuda, ", properties().name); }

    cuda_memory& memory() { return memory_; }
    workspace& scratch() { return workspace_; }

    /// From now on products are the engine's, where it is the faster one; an empty engine: all are halftone's.
    void use(const any_matmul_engine& engine) { engines_.hold(engine.start(stream(), properties())); }
    matmul_engine* engine_for(const product_description& p) const { return engines_.engine_for(p); }

    /// Runs a kernel of exec/simt/simt.hpp's kind.
    template <class Kernel>
    void launch(const Kernel& kernel) {
        static_assert(Kernel::threads % 32 == 0 && Kernel::threads <= 1024);
        static_assert(sizeof(Kernel) <= 4096, "halftone: the arguments of a kernel exceed CUDA's 4096 bytes");
        const simt::grid_shape g = kernel.grid();
        if (g.x <= 0 || g.y <= 0 || g.z <= 0) return;  // an empty grid is an error to CUDA, and nothing to do for us
        const auto entry = &detail::kernel_entry<Kernel>;
        if constexpr (Kernel::shared_bytes > 48 * 1024) {
            if (prepared_.insert(reinterpret_cast<const void*>(entry)).second) {
                detail::cuda_check(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(Kernel::shared_bytes)), "cudaFuncSetAttribute");
            }
        }
        entry<<<dim3(static_cast<unsigned>(g.x), static_cast<unsigned>(g.y), static_cast<unsigned>(g.z)), Kernel::threads, Kernel::shared_bytes, stream()>>>(kernel);
        detail::cuda_check(cudaGetLastError(), "a kernel's launch");
    }

    /// Calls f, a HALFTONE_HD function object over pointers of the device's, in order with the device's other work.
    template <class Function>
    void run(const Function& f) {
        detail::function_entry<<<1, 1, 0, stream()>>>(f);
        detail::cuda_check(cudaGetLastError(), "a function's launch");
    }
    /// n elements of one value.
    template <class T>
    void fill(T* to, extent n, T value) {
        if (n <= 0) return;
        const extent blocks = (n + 255) / 256;
        detail::fill_entry<<<static_cast<unsigned>(blocks < 4096 ? blocks : 4096), 256, 0, stream()>>>(to, n, value);
        detail::cuda_check(cudaGetLastError(), "a fill's launch");
    }
    void copy(void* to, const void* from, std::size_t bytes) {
        if (bytes != 0) detail::cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()), "cudaMemcpyAsync");
    }
    /// Host memory to the device's: the host memory is free again on return, and nothing waits for the GPU but for one of the
    /// last few uploads, where they are all under way still.
    void upload(void* to, const void* from, std::size_t bytes) { staging_.send(to, from, bytes, stream()); }
    /// Whether kernels can read what the pointer names.
    bool reaches(const void* p) const {
        cudaPointerAttributes a{};
        if (cudaPointerGetAttributes(&a, p) != cudaSuccess) {
            cudaGetLastError();
            return false;
        }
        return a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged;
    }
    /// Waits for all work of the stream.
    void synchronize() { detail::cuda_check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize"); }

  private:
    detail::cuda_stream stream_;
    cuda_memory memory_;
    workspace workspace_;
    pinned_staging staging_;
    engine_slot engines_;
    std::unordered_set<const void*> prepared_;
};

}  // namespace halftone::inline HALFTONE_ABI
