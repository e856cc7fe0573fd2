// SPDX-License-Identifier: MIT
/// \file
/// The CPU as a device: its threads, its instruction set, its memory.
///
///     ht::cpu device;                                             // all cores, the fastest instruction set
///     ht::cpu small{{.threads = 1, .instruction_set = ht::isa::avx2}};
///     ht::cpu sparing{{.workspace = memory}};                     // your own std::span<std::byte> as scratch memory
///
/// A context may be used by any thread, one at a time; several contexts may be used by several threads at once, since
/// there is no static state. What a context made (tensors, stores, tapes) must not outlive it. Results do not depend on
/// the number of threads: the partition of work follows from shapes, and partial sums are added in a fixed tree.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <halftone/exec/cpu/cache_sizes.hpp>
#include <halftone/exec/cpu/executor.hpp>
#include <halftone/exec/cpu/float_control.hpp>
#include <halftone/exec/cpu/isa.hpp>
#include <halftone/exec/cpu/processors.hpp>
#include <halftone/exec/cpu/shares.hpp>
#include <halftone/exec/cpu/thread_pool.hpp>
#include <halftone/exec/ranges.hpp>
#include <halftone/exec/workspace.hpp>
#include <halftone/memory/planned.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Options of a CPU context.
struct cpu_options {
    int threads = 0;                                    ///< 0: one for each processor that this process may use
    std::optional<isa> instruction_set = std::nullopt;  ///< none: that of HALFTONE_ISA, else this machine's fastest
    halftone::executor* executor = nullptr;             ///< nullptr: a thread pool of the context's own
    std::size_t memory_limit = static_cast<std::size_t>(-1);  ///< bytes that this context may allocate
    std::span<std::byte> workspace{};                         ///< the caller's memory as scratch memory; empty: its own
    arena_kind arenas = arena_kind::segments;  ///< how tapes divide their memory (docs/memory.md); the results are the same
};

/// A CPU as a device: an instruction set, threads and memory. Used by one thread at a time; neither copyable nor
/// movable. It has all state that operations on a CPU need.
class cpu {
  public:
    /// Throws argument_error for a number of threads that is negative, above 4096 or more than the system can start,
    /// and for an instruction set that this processor lacks.
    explicit cpu(const cpu_options& options = {});
    /// For exec/measure.hpp: partitions work as `real` does and counts its scratch memory, but runs nothing.
    cpu(const cpu& real, detail::measuring tag)
        : memory_(std::make_unique<host_memory>(0)),
          workspace_(tag),
          set_(real.set_),
          caches_(real.caches_),
          executor_(real.executor_),
          measures_(true) {}
    /// For observe/memory/plan.hpp: a context like `real` with memory that is counted, of which tapes tell `listener`.
    cpu(const cpu& real, detail::memory_planning how, range_listener& listener)
        : memory_(std::make_unique<planned_memory>(how.limit)),
          workspace_(*memory_),
          set_(real.set_),
          caches_(real.caches_),
          executor_(real.executor_),
          measures_(true),
          listener_(&listener) {
        memory_->use_arenas_of(*real.memory_);
    }
    cpu(const cpu&) = delete;
    cpu& operator=(const cpu&) = delete;

    /// The instruction set whose kernels run.
    isa instruction_set() const { return set_; }
    /// The number of threads of a parallel region, the caller's included.
    int threads() const { return executor_->concurrency(); }
    /// The caches that products are cut for.
    const detail::cache_sizes& caches() const { return caches_; }
    /// For people: "cpu, avx512, 2 threads".
    std::string description() const {
        return detail::sentence("cpu, ", name(set_), ", ", threads(), threads() == 1 ? " thread" : " threads");
    }

    /// The memory of tensors, stores and tapes, counted by kind.
    memory_resource& memory() { return *memory_; }
    /// Scratch memory of kernels.
    workspace& scratch() { return workspace_; }
    /// What contexts on this device begin with as the listener of their operations; nullptr: none.
    range_listener* listener() const { return listener_; }

    /// The SIMD body for this context's instruction set, out of those compiled for each set (each_set.hpp).
    template <class Function>
    Function* select(Function* portable, Function* avx2, Function* avx512) const {
        return set_ >= isa::avx512 ? avx512 : set_ == isa::avx2 ? avx2 : portable;
    }

    /// Calls body(index) for every index in [0, count), on all threads. Any thread may take any index, but each thread
    /// begins with a contiguous range of its own (shares.hpp). `body` must not throw, and must not call parallel_for of
    /// this context.
    template <class Body>
    void parallel_for(extent count, const Body& body) {
        run_region(count, 0, &body, &call_at<Body>);
    }

    /// Calls body(index, scratch) for every index in [0, count), on all threads, with `bytes` of scratch memory for
    /// each worker.
    template <class Body>
    void parallel_for(extent count, std::size_t bytes, const Body& body) {
        run_region(count, bytes, &body, &call_with_scratch<Body>);
    }

    /// Sets n elements to one value.
    template <class T>
    void fill(T* to, extent n, T value) {
        if (!measures_) std::fill_n(to, n, value);
    }
    /// Copies bytes that do not overlap.
    void copy(void* to, const void* from, std::size_t bytes) {
        if (!measures_) std::memcpy(to, from, bytes);
    }
    /// Whether kernels can read the memory at the pointer: always true on the host.
    bool reaches(const void*) const { return true; }
    /// Copies host memory to memory that kernels can read.
    void upload(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes); }
    /// Calls f, a function without arguments over pointers of the device's, in order with the device's other work.
    template <class Function>
    void run(const Function& f) {
        if (!measures_) f();
    }

  private:
    // Type-erased: the code that runs a region exists once in a program, and only bodies are instantiated.
    using body_call = void (*)(const void* body, extent index, std::byte* scratch);
    struct region {
        const void* body;
        body_call call;
        std::byte* scratch;
        std::size_t scratch_bytes;  ///< for each worker
        detail::index_shares shares;
        detail::float_control control = detail::float_control::of_this_thread();  ///< the calling thread's

        void run(int worker);
    };

    template <class Body>
    static void call_at(const void* body, extent index, std::byte*) {
        (*static_cast<const Body*>(body))(index);
    }
    template <class Body>
    static void call_with_scratch(const void* body, extent index, std::byte* scratch) {
        (*static_cast<const Body*>(body))(index, scratch);
    }

    void run_region(extent count, std::size_t bytes, const void* body, body_call call);

    std::unique_ptr<memory_resource> memory_;
    workspace workspace_;
    isa set_;
    detail::cache_sizes caches_ = detail::cache_sizes::of_this_machine();
    std::unique_ptr<thread_pool> pool_;
    executor* executor_;
    bool measures_ = false;
    range_listener* listener_ = nullptr;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/exec/cpu/cpu.body.hpp>
#endif
