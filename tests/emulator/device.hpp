// SPDX-License-Identifier: MIT
/// \file
/// The emulated GPU as a device: it runs the kernels that ht::cuda runs, without a GPU.
///
///     emulator::device device{{.seed = 3}};
///     ht::nn::gpt<ht::amp_bf16> model{device, config};
///
/// The host cannot access its memory, except in launches, copies and fills, like that of a GPU: host code that dereferences a
/// device pointer faults. It captures work (exec/capture.hpp) as a GPU does: launches are recorded with their arguments, and
/// executed only in replays.
///
/// Work is executed when the host calls it, or later: device.memory().work_later(true) puts it in a queue, as a stream is one, until
/// the host reads memory or waits. The host is then as far ahead of its GPU as it can be.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <emulator/thread.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include <halftone/exec/capture.hpp>
#include <halftone/exec/simt/architecture.hpp>
#include <halftone/exec/workspace.hpp>

namespace halftone::emulator {

/// Captured work: functions with their arguments.
class noted_work {
  public:
    void add(std::function<void()> f) { calls_.push_back(std::move(f)); }
    void operator()() const {
        for (const std::function<void()>& f : calls_) f();
    }
    std::size_t size() const { return calls_.size(); }

  private:
    std::vector<std::function<void()>> calls_;
};

/// Pages that are mapped, but can be accessed only while the memory is open.
class closed_memory final : public memory_resource {
  public:
    explicit closed_memory(std::size_t limit = static_cast<std::size_t>(-1)) : limit_(limit) {}
    ~closed_memory() override { finish_quietly(); }

    /// The memory is open while one of these lives.
    class opening {
      public:
        explicit opening(closed_memory& m) : memory_(m) {
            if (memory_.openings_++ == 0) memory_.protect(PROT_READ | PROT_WRITE);
        }
        opening(const opening&) = delete;
        opening& operator=(const opening&) = delete;
        ~opening() {
            if (--memory_.openings_ == 0) memory_.protect(PROT_NONE);
        }

      private:
        closed_memory& memory_;
    };

    std::size_t page_bytes() const override { return page; }

    bool owns(const void* p) const {
        const auto* at = static_cast<const std::byte*>(p);
        return std::any_of(blocks_.begin(), blocks_.end(),
                           [at](const block& b) { return at >= b.data && at < b.data + b.bytes; });
    }

    std::size_t limit() const override { return limit_; }
    void write(void* to, const void* from, std::size_t bytes) override {
        expect_no_capture(detail::write_in_capture);
        copy(to, from, bytes);
        finish();
    }
    void read(void* to, const void* from, std::size_t bytes) override {
        expect_no_capture(detail::read_in_capture);
        copy(to, from, bytes);
        finish();
    }
    void clear(void* to, std::size_t bytes) override {
        in_order([=, this] {
            const opening here(*this);
            if (bytes != 0) std::memset(to, 0, bytes);
        });
    }
    void copy(void* to, const void* from, std::size_t bytes) {
        in_order([=, this] {
            const opening here(*this);
            if (bytes != 0) std::memcpy(to, from, bytes);
        });
    }

    /// Copies host memory, which may be changed on return, to this memory.
    void upload(void* to, const void* from, std::size_t bytes) {
        if (!is_late()) return copy(to, from, bytes);
        const auto* first = static_cast<const std::byte*>(from);
        enqueue([this, to, staged = std::vector<std::byte>(first, first + bytes)] {
            copy(to, staged.data(), staged.size());
        });
    }

    /// Calls f, or puts it in the queue, or records it while work is captured.
    template <class Function>
    void in_order(const Function& f) {
        static_assert(std::is_trivially_copyable_v<Function>, "a GPU takes the arguments of a launch as bytes");
        if (notes_ == nullptr) {
            enqueue(f);
        } else {
            notes_->add(f);
        }
    }
    /// Calls f, or puts it in the queue.
    template <class Function>
    void enqueue(Function&& f) {
        if (is_late()) {
            queue_.push_back({std::forward<Function>(f), false});
        } else {
            f();
        }
    }
    /// Whether work that is called now waits in the queue.
    bool is_late() const { return works_later_ && !is_working_; }
    /// From now on work waits in the queue until finish().
    void work_later(bool yes) { works_later_ = yes; }
    /// Executes the work in the queue, in order. Throws what it throws, also what it threw where it was not allowed to; the rest of
    /// the queue is dropped then.
    void finish() {
        if (is_working_ || (queue_.empty() && failed_ == nullptr)) return;
        is_working_ = true;
        struct leaving {
            closed_memory& memory;
            ~leaving() {
                for (const work& w : memory.queue_) {
                    if (w.frees_memory) w.call();
                }
                memory.queue_.clear();
                memory.is_working_ = false;
            }
        } at_the_end{*this};
        const opening here(*this);  // once for all
        while (!queue_.empty()) {
            const work next = std::move(queue_.front());
            queue_.pop_front();
            next.call();
        }
        if (const std::exception_ptr before = std::exchange(failed_, nullptr)) std::rethrow_exception(before);
    }
    /// The graph in which work is recorded from now on; nullptr: work is executed.
    void note_in(noted_work* notes) { notes_ = notes; }
    noted_work* notes() const { return notes_; }

  private:
    struct block {
        std::byte* data;
        std::size_t bytes;
    };

    /// Work in the queue; after an error only memory is freed.
    struct work {
        std::function<void()> call;
        bool frees_memory;
    };

    /// Before ranges of addresses are given back.
    void finish_quietly() noexcept {
        try {
            finish();
        } catch (...) {
            failed_ = std::current_exception();
        }
    }
    void protect(int access) const {
        for (const block& b : blocks_) mprotect(b.data, b.bytes, access);
    }
    static std::size_t pages(std::size_t bytes) {
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        return round_up(std::max<std::size_t>(bytes, 1), page);
    }
    std::byte* obtain(std::size_t bytes) override {
        if (bytes > limit_ - usage().held()) return nullptr;
        void* data = mmap(nullptr, pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) return nullptr;
        std::memset(data, 0xff, pages(bytes));  // a NaN in every floating-point format
        if (openings_ == 0) mprotect(data, pages(bytes), PROT_NONE);
        blocks_.push_back({static_cast<std::byte*>(data), pages(bytes)});
        return static_cast<std::byte*>(data);
    }
    void release(std::byte* data, std::size_t bytes) noexcept override {
        const auto give_back = [this, data, bytes] {
            std::erase_if(blocks_, [data](const block& b) { return b.data == data; });
            munmap(data, pages(bytes));
        };
        if (is_late()) {
            queue_.push_back({give_back, true});  // in order with work, as cudaFreeAsync
        } else {
            give_back();
        }
    }
    address_range obtain_range() override { return detail::host_pages::reserve(page); }
    bool commit(std::byte* at, std::size_t bytes) override {
        if (bytes > limit_ - usage().held() || !detail::host_pages::commit(at, bytes)) return false;
        std::memset(at, 0xff, bytes);
        if (openings_ == 0) mprotect(at, bytes, PROT_NONE);
        blocks_.push_back({at, bytes});
        return true;
    }
    void uncommit(std::byte* at, std::size_t bytes) override {
        finish_quietly();
        std::erase_if(blocks_, [at](const block& b) { return b.data == at; });
        detail::host_pages::decommit(at, bytes);
    }
    void release_range(const address_range& range) noexcept override {
        finish_quietly();
        std::erase_if(blocks_,
                      [&range](const block& b) { return b.data >= range.data && b.data < range.data + range.bytes; });
        detail::host_pages::release(range);
    }

    static constexpr std::size_t page = std::size_t{1} << 16;

    std::size_t limit_;
    std::vector<block> blocks_;
    int openings_ = 0;
    noted_work* notes_ = nullptr;
    std::deque<work> queue_;
    bool works_later_ = false, is_working_ = false;
    std::exception_ptr failed_;
};

class device {
  public:
    static constexpr bool runs_simt_kernels = true;
    using captured = noted_work;

    /// `poses_as`: the architecture, which determines the tiles of kernels and the shared memory of a block.
    explicit device(const options& option = {}, const simt::architecture& poses_as = simt::architecture_of(80),
                    std::span<std::byte> workspace = {})
        : option_(option), architecture_(poses_as), workspace_(memory_, workspace) {}
    device(const device&) = delete;
    device& operator=(const device&) = delete;

    closed_memory& memory() { return memory_; }
    workspace& scratch() { return workspace_; }
    std::string description() const { return "emulated GPU"; }
    simt::architecture architecture() const { return architecture_; }

    /// The options of all later launches.
    options& how() { return option_; }
    /// Counts of all launches so far; `sites` are those of the last one.
    const statistics& count() const { return count_; }
    long launches() const { return static_cast<long>(each_.size()); }
    /// Counts of each completed launch so far.
    const std::vector<statistics>& each_launch() const { return each_; }
    /// The number of the only launch that how().harm damages; -1: all.
    long& harmed_launch() { return harmed_launch_; }

    /// Whether kernels use matrix units of eight bits; the same for all architectures.
    template <class Kernel>
    bool has_eight_bit_code() const {
        return true;
    }
    /// Whether the kernels' code for sm_90a, with Hopper's matrix instructions, is used; for no other architecture.
    bool has_wgmma_code() const { return architecture_.version == 90; }
    /// For bulk copies of boxes of 128 bytes x box_outer of a matrix: `outer` lines of `inner` elements, `leading` apart.
    template <class T>
    auto tile_map(const T* data, extent inner, extent outer, extent leading, int box_outer) {
        static_assert(sizeof(T) == 2 || sizeof(T) == 4);
        return possible({data, inner, outer, leading, box_outer, static_cast<int>(sizeof(T))});
    }
    /// The same of a tensor of four axes.
    template <class T>
    auto tile_map(const T* data, const simt::tile_axes& a, int box_outer) {
        static_assert(sizeof(T) == 2);
        return possible({data, a.inner, a.extents[0], a.distances[0], box_outer, static_cast<int>(sizeof(T)),
                         {a.extents[1], a.extents[2]}, {a.distances[1], a.distances[2]}, 4});
    }
    template <class Kernel>
    void launch(const Kernel& kernel) {
        do_in_order(call_of(kernel));
    }

    /// Calls f with device pointers, in order with the device's other work.
    template <class Function>
    void run(const Function& f) {
        memory_.in_order([this, f] {
            const closed_memory::opening here(memory_);
            f();
        });
    }
    template <class T>
    void fill(T* to, extent n, T value) {
        memory_.in_order([=, this] {
            const closed_memory::opening here(memory_);
            std::fill_n(to, n, value);
        });
    }
    void copy(void* to, const void* from, std::size_t bytes) { memory_.copy(to, from, bytes); }
    /// Whether kernels can read the memory at this pointer.
    bool reaches(const void* p) const { return memory_.owns(p); }
    /// Copies host memory to memory that kernels can read.
    void upload(void* to, const void* from, std::size_t bytes) {
        memory_.expect_no_capture(detail::write_in_capture);
        memory_.upload(to, from, bytes);
    }
    void synchronize() {
        memory_.expect_no_capture(detail::wait_in_capture);
        memory_.finish();
    }

    /// See exec/capture.hpp.
    template <class Function>
    captured capture(const Function& f) {
        const memory_resource::capturing guard(memory_);
        noted_work notes;
        struct noting {
            closed_memory& memory;
            ~noting() { memory.note_in(nullptr); }
        } until_the_end{memory_};
        memory_.note_in(&notes);
        f();
        return notes;
    }
    void replay(const captured& work) {
        memory_.expect_no_capture(detail::replay_in_capture);
        memory_.finish();
        work();
        memory_.finish();
    }

  private:
    static emulator::tile_map possible(const emulator::tile_map& map) {
        if (map.can_be()) return map;
        throw failure(halftone::detail::sentence("a tile_map of ", map.outer, " lines of ", map.inner, ", ", map.leading,
                                                 " apart, in boxes of ", map.box_outer,
                                                 ": empty, too large or misaligned"));
    }
    void do_in_order(const kernel_call& kernel) {
        const grid_shape& g = kernel.shape.grid;
        if (g.x <= 0 || g.y <= 0 || g.z <= 0) return;
        if (g.y > 65535 || g.z > 65535) {
            throw failure("a grid of " + std::to_string(g.x) + " x " + std::to_string(g.y) + " x " +
                          std::to_string(g.z) + " blocks; CUDA takes at most 65535 along y and z");
        }
        if (kernel.shape.shared_bytes > static_cast<std::size_t>(architecture_.shared_bytes)) {
            throw failure("a kernel of " + std::to_string(kernel.shape.shared_bytes) +
                          " bytes of shared memory; a block has at most " + std::to_string(architecture_.shared_bytes));
        }
        noted_work* const notes = memory_.notes();
        if (notes == nullptr && !memory_.is_late()) return run_now(kernel);
        const auto* bytes = static_cast<const std::byte*>(kernel.kernel);
        const auto noted = [this, kernel, copy = std::vector<std::byte>(bytes, bytes + kernel.bytes)] {
            kernel_call again = kernel;
            again.kernel = copy.data();
            run_now(again);
        };
        if (notes != nullptr) {
            notes->add(noted);
        } else {
            memory_.enqueue(noted);
        }
    }
    void run_now(const kernel_call& kernel) {
        const closed_memory::opening here(memory_);
        options now = option_;
        now.architecture = architecture_.version;
        if (harmed_launch_ >= 0 && harmed_launch_ != launches()) now.harm = damage::none;
        const statistics s = machine_.run(kernel, now);
        each_.push_back(s);
        ++option_.seed;
        count_.blocks += s.blocks;
        count_.switches += s.switches;
        count_.bank_conflicts += s.bank_conflicts;
        count_.eight_bit_mmas += s.eight_bit_mmas;
        count_.warpgroup_mmas += s.warpgroup_mmas;
        std::copy(std::begin(s.sites), std::end(s.sites), std::begin(count_.sites));
    }

    options option_;
    simt::architecture architecture_;
    closed_memory memory_;
    workspace workspace_;
    machine machine_;
    statistics count_{};
    std::vector<statistics> each_;
    long harmed_launch_ = -1;
};

/// The functions of exec/simt/sort.hpp. The library's work is neither scheduled nor damaged by tests; but it leaves its scratch
/// memory with arbitrary contents, and reads only the bits that it is given.
template <class Key, class Value>
std::size_t sort_bytes(device&, const Key*, Key*, const Value*, Value*, extent count, int) {
    return static_cast<std::size_t>(count) * (sizeof(Key) + sizeof(Value));
}
template <class Key, class Value>
void sort_pairs(device& on, const Key* keys, Key* sorted_keys, const Value* values, Value* sorted_values, extent count,
                int bits) {
    if (count <= 0) return;
    const std::size_t bytes = sort_bytes(on, keys, sorted_keys, values, sorted_values, count, bits);
    const workspace::lease scratch(on.scratch(), bytes);
    on.run([=, memory = scratch.data()] {
        std::memset(memory, 0xff, bytes);
        std::vector<extent> order(static_cast<std::size_t>(count));
        std::iota(order.begin(), order.end(), extent{0});
        const Key mask = static_cast<Key>(bits < std::numeric_limits<Key>::digits ? (Key{1} << bits) - 1 : ~Key{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](extent a, extent b) { return (keys[a] & mask) < (keys[b] & mask); });
        for (extent i = 0; i < count; ++i) {
            sorted_keys[i] = keys[order[static_cast<std::size_t>(i)]];
            sorted_values[i] = values[order[static_cast<std::size_t>(i)]];
        }
    });
}
template <class Count>
std::size_t inclusive_sum_bytes(device&, Count*, extent count) {
    return static_cast<std::size_t>(count / 128 + 1) * sizeof(Count);
}
template <class Count>
void inclusive_sum(device& on, Count* counts, extent count) {
    if (count <= 0) return;
    const std::size_t bytes = inclusive_sum_bytes(on, counts, count);
    const workspace::lease scratch(on.scratch(), bytes);
    on.run([=, memory = scratch.data()] {
        std::memset(memory, 0xff, bytes);
        std::partial_sum(counts, counts + count, counts);
    });
}

}  // namespace halftone::emulator
