// SPDX-License-Identifier: MIT
/// \file
/// An NVIDIA GPU as a device: one CUDA stream, and the memory that work on it needs.
///
///     ht::cuda device;                                  // the current GPU, with a stream of its own
///     ht::cuda gpu{stream};                             // with your stream; 0 is the default stream, as in CUDA
///     ht::cuda own{stream, memory, ht::cublaslt{}};     // with your std::span<std::byte> as scratch memory, too
///     ht::cuda other{{.device = 1, .memory_limit = std::size_t{8} << 30}};
///
/// A context uses one stream and serves one thread at a time. Several contexts, of one GPU or of several, may be used
/// by several threads at once, since there is no static state. The calling thread's current device (cudaSetDevice) does
/// not matter and is unchanged after a call. Only calls that say so wait for the GPU: memory().read and write,
/// synchronize.
///
/// A user's stream may be any. 0, PyTorch's current stream unless a program changes it, is the legacy default stream,
/// which is ordered with all other blocking streams. A stream that the context makes (ht::own_stream, the default of
/// options) is non-blocking: it is ordered with no other stream except by events. Making a context costs a few CUDA
/// calls that query attributes, so that one may be made for a single call; everything else is allocated at first use.
///
/// Memory comes from options.pool. If none is given, a context with its own stream makes its own pool, which keeps
/// freed memory; a context on a user's stream allocates from the GPU's current pool, as cudaMallocAsync does, and
/// changes none of that pool's settings. If you make contexts for single calls that need scratch memory, give them a
/// workspace, or a pool that outlives them (exec/cuda/pool.cuh).
///
/// The program may capture the stream (cudaStreamBeginCapture) and call operations on the context: launches, fills and
/// copies become nodes of its graph. What would wait, upload or allocate throws capture_error before it calls CUDA, so
/// that the capture stays valid. The graph uses the context's scratch memory: keep the context as long as the graph.
///
///     compute.wait_for(copies);                         // later work of `compute` starts after all earlier work of `copies`
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <halftone/exec/cuda/current_device.cuh>
#include <halftone/exec/cuda/event.cuh>
#include <halftone/exec/cuda/graph.cuh>
#include <halftone/exec/cuda/memory.cuh>
#include <halftone/exec/cuda/staging.cuh>
#include <halftone/exec/cuda/thread.cuh>
#include <halftone/exec/matmul_engine.hpp>
#include <halftone/exec/simt/architecture.hpp>
#include <halftone/exec/workspace.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Starts an engine for a context's products: empty, or made from a ht::cublaslt (exec/cuda/cublaslt.cuh).
class any_matmul_engine {
  public:
    any_matmul_engine() = default;
    template <class Engine>
        requires requires(const Engine& e, const cudaDeviceProp& properties) { e.start(cudaStream_t{}, properties); }
    any_matmul_engine(const Engine& engine)
        : how_(std::make_shared<const starter_of<Engine>>(engine)) {}  // NOLINT(google-explicit-constructor)

    bool is_there() const { return how_ != nullptr; }
    /// nullptr if empty.
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
        std::unique_ptr<matmul_engine> start(cudaStream_t stream, const cudaDeviceProp& properties) const override {
            return engine.start(stream, properties);
        }
        Engine engine;
    };
    std::shared_ptr<const starter> how_;
};

/// Tells a context to make a stream of its own, which it destroys at its end. The stream is non-blocking: it waits for
/// no other, not even for the default stream.
struct own_stream_t {
    explicit own_stream_t() = default;
};
/// ht::cuda gpu{ht::own_stream}: with a stream of its own.
inline constexpr own_stream_t own_stream{};

/// A context's stream: any stream or CUDA's special stream numbers, given by the program, or one of its own.
class cuda_stream_choice {
  public:
    constexpr cuda_stream_choice(own_stream_t) : is_own_(true) {}           // NOLINT(google-explicit-constructor)
    constexpr cuda_stream_choice(cudaStream_t stream) : stream_(stream) {}  // NOLINT(google-explicit-constructor)

    constexpr bool is_own() const { return is_own_; }
    /// The user's stream. 0 is replaced by the default stream of this compilation (legacy or per-thread), so that the
    /// stream does not depend on the file from which the context is called.
    cudaStream_t get() const {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
        return stream_ != nullptr ? stream_ : cudaStreamPerThread;
#else
        return stream_ != nullptr ? stream_ : cudaStreamLegacy;
#endif
    }

  private:
    cudaStream_t stream_ = nullptr;
    bool is_own_ = false;
};

/// Options of a GPU's context.
struct cuda_options {
    int device = -1;                         ///< -1: that of the stream; else (own, default, captured) the current one
    cuda_stream_choice stream = own_stream;  ///< its own, or the program's; 0 is the default stream
    std::size_t memory_limit = static_cast<std::size_t>(-1);  ///< bytes that this context may allocate
    any_matmul_engine engine{};                               ///< multiplies in place of halftone's kernels
    engine_use engine_is_used = engine_use::by_table;         ///< the environment's HALFTONE_MATMUL overrides it
    std::span<std::byte> workspace{};  ///< the caller's GPU memory as scratch memory; empty: its own
    cudaMemPool_t pool = nullptr;      ///< none: its own if the stream is its own, else the GPU's current pool
    std::size_t pool_keeps = cuda_pool::everything;  ///< free bytes that its own pool keeps
    arena_kind arenas = arena_kind::segments;  ///< how tapes divide their memory (docs/memory.md); the results are the same
    /// The bits of a product's row do not depend on how many rows there are: k is never cut into parts, which takes longer for
    /// few rows, and no engine is used. Attention of packed sequences, and with a cache, has the bits of each sequence alone:
    /// Hopper's warpgroups, which add in another order, compute none.
    bool batch_invariant = false;
};

namespace detail {

/// A stream, owned or not, and the properties of its GPU.
class cuda_stream {
  public:
    explicit cuda_stream(const cuda_options& o) : device_(o.device), is_owned_(o.stream.is_own()) {
        if (!is_owned_) stream_ = o.stream.get();
        int count = 0;
        cuda_check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
        const int of_stream = is_owned_ ? -1 : device_of(stream_);
        if (device_ < 0) device_ = of_stream >= 0 ? of_stream : current_device_number();
        if (of_stream >= 0 && device_ != of_stream)
            fail<argument_error>("cuda: device ", device_, "; the stream is one of device ", of_stream);
        if (device_ >= count) fail<argument_error>("cuda: device ", device_, "; there are ", count);
        const int major = attribute(cudaDevAttrComputeCapabilityMajor),
                  minor = attribute(cudaDevAttrComputeCapabilityMinor);
        if (major < 8)
            fail<argument_error>("cuda: ", properties().name, " is of architecture ", major, ".", minor,
                                 "; halftone's kernels need 8.0 or newer");
        architecture_ = {10 * major + minor, attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin),
                         attribute(cudaDevAttrMultiProcessorCount), o.batch_invariant};
        if (!is_owned_) return;
        const current_device here(device_);
        cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    cuda_stream(const cuda_stream&) = delete;
    cuda_stream& operator=(const cuda_stream&) = delete;
    ~cuda_stream() {
        if (!is_owned_) return;
        const current_device here(device_);
        cudaStreamDestroy(stream_);
    }

    int device() const { return device_; }
    cudaStream_t get() const { return stream_; }
    const simt::architecture& architecture() const { return architecture_; }
    /// Read at first use, since it takes CUDA a thousand times longer than reading an attribute.
    const cudaDeviceProp& properties() const {
        if (properties_ == nullptr) {
            auto all = std::make_unique<cudaDeviceProp>();
            cuda_check(cudaGetDeviceProperties(all.get(), device_), "cudaGetDeviceProperties");
            properties_ = std::move(all);
        }
        return *properties_;
    }

  private:
    int attribute(cudaDeviceAttr which) const {
        int value = 0;
        cuda_check(cudaDeviceGetAttribute(&value, which, device_), "cudaDeviceGetAttribute");
        return value;
    }

    int device_;
    bool is_owned_;
    cudaStream_t stream_ = nullptr;
    simt::architecture architecture_{};
    mutable std::unique_ptr<const cudaDeviceProp> properties_;
};

}  // namespace detail

/// A GPU as a device: a stream, its own or the user's, and memory allocated in that stream's order. Used by one thread
/// at a time; neither copyable nor movable. Only memory().read and write, synchronize(), and what says so wait for the
/// GPU.
class cuda {
  public:
    static constexpr bool runs_simt_kernels = true;

    /// Throws cuda_error if there is no usable GPU, and argument_error for a device number that does not exist, a GPU
    /// that is too old, and a workspace that is not a GPU's memory.
    explicit cuda(const cuda_options& options = {})
        : stream_(options),
          memory_(stream_.device(), stream_.get(), options.memory_limit, options.pool),
          workspace_(memory_, options.workspace),
          engines_(options.engine_is_used) {
        memory_.set_arenas(options.arenas);
        if (!options.workspace.empty() && !reaches(options.workspace.data()))
            fail<argument_error>("cuda: the workspace is not GPU memory");
        if (options.pool == nullptr && options.stream.is_own()) memory_.use_own_pool(options.pool_keeps);
        if (options.engine.is_there()) use(options.engine);
    }
    explicit cuda(cuda_stream_choice stream) : cuda(cuda_options{.stream = stream}) {}
    cuda(cuda_stream_choice stream, std::span<std::byte> workspace, const any_matmul_engine& engine = {})
        : cuda(cuda_options{.stream = stream, .engine = engine, .workspace = workspace}) {}
    cuda(const cuda&) = delete;
    cuda& operator=(const cuda&) = delete;

    /// The stream of all work of the context.
    cudaStream_t stream() const { return stream_.get(); }
    /// CUDA's number of the GPU.
    int device() const { return stream_.device(); }
    /// All properties of the GPU; read at first use.
    const cudaDeviceProp& properties() const { return stream_.properties(); }
    simt::architecture architecture() const { return stream_.architecture(); }
    /// A description for logs: "cuda, NVIDIA H200".
    std::string description() const { return detail::sentence("cuda, ", properties().name); }

    /// The memory of tensors, stores and tapes, counted by kind.
    cuda_memory& memory() { return memory_; }
    /// Scratch memory of kernels, on the GPU.
    workspace& scratch() { return workspace_; }

    /// Sets the engine, which computes products where it is the faster one; empty: halftone's kernels compute all.
    void use(const any_matmul_engine& engine) {
        const detail::current_device here(device());
        engines_.hold(engine.is_there() ? engine.start(stream(), properties()) : nullptr);
    }
    /// The engine, if it is to compute this product; nullptr: halftone's kernels do.
    matmul_engine* engine_for(const product_description& p) const {
        return architecture().batch_invariant ? nullptr : engines_.engine_for(p);
    }

    /// Whether the kernel's code, as loaded on this GPU, uses 8-bit matrix instructions: code compiled for an older
    /// architecture cannot.
    template <class Kernel>
    bool has_eight_bit_code() {
        const detail::current_device here(device());
        const auto entry = reinterpret_cast<const void*>(&detail::kernel_entry<Kernel>);
        const auto [place, is_new] = code_versions_.try_emplace(entry, 0);
        if (is_new) {
            cudaFuncAttributes a{};
            detail::cuda_check(cudaFuncGetAttributes(&a, entry), "cudaFuncGetAttributes");
            place->second = a.ptxVersion;
        }
        return simt::architecture_of(place->second).has_eight_bit_units();
    }
    /// Whether this file's code for the GPU has Hopper's instructions: it was compiled for sm_90a, and this is such a
    /// GPU.
    bool has_wgmma_code() {
        if (architecture().version != 90) return false;
        if (has_wgmma_code_ < 0) {
            const detail::current_device here(device());
            cudaFuncAttributes a{};
            detail::cuda_check(cudaFuncGetAttributes(&a, &detail::wgmma_probe<32>), "cudaFuncGetAttributes");
            has_wgmma_code_ = a.sharedSizeBytes != 0 ? 1 : 0;
        }
        return has_wgmma_code_ == 1;
    }
    /// A tensor map for bulk_copy: `outer` rows of `inner` contiguous elements, with leading dimension `leading`; one
    /// copy takes box_outer rows.
    template <class T>
    detail::tensor_map tile_map(const T* data, extent inner, extent outer, extent leading, int box_outer) {
        return tensor_maps_.make(data, inner, outer, leading, box_outer);
    }
    /// A tensor map for bulk_copy of a tensor of four axes; one copy takes box_outer elements of the second axis and
    /// one of each other.
    template <class T>
    detail::tensor_map tile_map(const T* data, const simt::tile_axes& axes, int box_outer) {
        return tensor_maps_.make(data, axes, box_outer);
    }
    /// Launches a kernel struct as exec/simt/simt.hpp describes it.
    template <class Kernel>
    void launch(const Kernel& kernel) {
        static_assert(Kernel::threads % 32 == 0 && Kernel::threads <= 1024);
        static_assert(sizeof(Kernel) <= 4096, "halftone: the arguments of a kernel exceed CUDA's 4096 bytes");
        const simt::grid_shape g = kernel.grid();
        if (g.x <= 0 || g.y <= 0 || g.z <= 0) return;  // CUDA rejects an empty grid
        if (g.y > simt::most_folds || g.z > simt::most_folds) {
            fail<argument_error>("cuda: a kernel's grid of ", g.x, " x ", g.y, " x ", g.z,
                                 " blocks; CUDA takes at most ", simt::most_folds, " along y and z");
        }
        const detail::current_device here(device());
        const auto entry = &detail::kernel_entry<Kernel>;
        // A multiple of 16: nvcc knows the alignment of shared memory, and may load to the end of the last 16 bytes
        // that are used.
        constexpr std::size_t shared_bytes = round_up(Kernel::shared_bytes, 16u);
        if constexpr (shared_bytes > 48 * 1024) {
            if (prepared_.insert(reinterpret_cast<const void*>(entry)).second) {
                detail::cuda_check(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                        static_cast<int>(shared_bytes)),
                                   "cudaFuncSetAttribute");
            }
        }
        start("a kernel's launch", entry,
              dim3(static_cast<unsigned>(g.x), static_cast<unsigned>(g.y), static_cast<unsigned>(g.z)), Kernel::threads,
              shared_bytes, kernel);
    }

    /// Calls f, a HALFTONE_HD function object over pointers of the device's, in order with the device's other work.
    template <class Function>
    void run(const Function& f) {
        const detail::current_device here(device());
        start("a function's launch", &detail::function_entry<Function>, 1, 1, 0, f);
    }
    /// Sets n elements to one value.
    template <class T>
    void fill(T* to, extent n, T value) {
        if (n <= 0) return;
        const extent blocks = detail::ceil_div(n, 256);
        const detail::current_device here(device());
        start("a fill's launch", &detail::fill_entry<T>, static_cast<unsigned>(blocks < 4096 ? blocks : 4096), 256, 0,
              to, n, value);
    }
    /// Copies bytes between any memories that CUDA knows, in the stream's order; the two must not overlap. Throws
    /// cuda_error.
    void copy(void* to, const void* from, std::size_t bytes) {
        const detail::current_device here(device());
        if (bytes != 0)
            detail::cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()), "cudaMemcpyAsync");
    }
    /// Copies host memory to the device's. The host memory may be changed on return. Does not wait for the GPU, unless
    /// all of the last few uploads are still under way.
    void upload(void* to, const void* from, std::size_t bytes) {
        memory_.expect_no_capture(detail::write_in_capture);
        const detail::current_device here(device());
        staging_.send(to, from, bytes, stream());
    }
    /// Pinned host memory for copies of this GPU. May be called by any thread.
    pinned_memory pinned(std::size_t bytes) const { return {device(), bytes}; }
    /// Whether kernels can read the memory at the pointer. Throws argument_error for memory of another GPU.
    bool reaches(const void* p) const {
        cudaPointerAttributes a{};
        if (cudaPointerGetAttributes(&a, p) != cudaSuccess) {
            cudaGetLastError();
            return false;
        }
        if (a.type == cudaMemoryTypeDevice && a.device != device())
            fail<argument_error>("cuda: memory of GPU ", a.device, " for a context of GPU ", device());
        return a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged;
    }
    /// Waits for all work of the stream.
    void synchronize() {
        memory_.expect_no_capture(detail::wait_in_capture);
        const detail::current_device here(device());
        detail::cuda_check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
    }

    using captured = cuda_graph;
    /// Captures the work that f gives this context, without running it; exec/capture.hpp has the rules.
    template <class Function>
    cuda_graph capture(const Function& f) {
        if (stream() == cudaStreamLegacy) fail<capture_error>("captured step: ", detail::default_stream_in_capture);
        const detail::current_device here(device());
        const memory_resource::capturing guard(memory_);
        detail::stream_capture noting(stream());
        f();
        return noting.finish();
    }
    /// Runs captured work, in order with the context's other work.
    void replay(const cuda_graph& work) {
        memory_.expect_no_capture(detail::replay_in_capture);
        const detail::current_device here(device());
        work.launch(stream());
    }

    /// An event after all work of this context so far.
    cuda_event record() const { return {device(), stream()}; }
    /// Makes later work of this context wait for the event; the host does not wait. The event may be of another GPU.
    void wait_for(const cuda_event& event) {
        const detail::current_device here(device());
        detail::cuda_check(cudaStreamWaitEvent(stream(), event.get(), 0), "cudaStreamWaitEvent");
    }
    /// Makes later work of this context wait for all work of the other context so far.
    void wait_for(const cuda& other) { wait_for(other.record()); }

  private:
    /// Throws the launch's own error, and leaves alone one that an earlier call of the user's has left.
    template <class... Parameters>
    void start(const char* call, void (*entry)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
               const std::type_identity_t<Parameters>&... arguments) {
        void* pointers[] = {const_cast<void*>(static_cast<const void*>(std::addressof(arguments)))...};
        detail::cuda_check(
            cudaLaunchKernel(reinterpret_cast<const void*>(entry), grid, block, pointers, shared_bytes, stream()),
            call);
    }

    detail::cuda_stream stream_;
    cuda_memory memory_;
    workspace workspace_;
    pinned_staging staging_;
    detail::engine_slot engines_;
    std::unordered_set<const void*> prepared_;
    std::unordered_map<const void*, int> code_versions_;
    detail::tensor_map_maker tensor_maps_;
    int has_wgmma_code_ = -1;  // -1: not determined yet
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
