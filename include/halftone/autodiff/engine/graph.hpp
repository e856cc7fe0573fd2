// SPDX-License-Identifier: MIT
/// \file
/// The graph under a tape: reference-counted blocks of arena memory, the slots to which variables refer, and the
/// records that a backward pass runs. It is independent of devices and element types.
///
/// A slot has a value and, during a backward pass, a gradient; both are blocks, which several slots may share. A value
/// is freed when the last handle to it is destroyed: a variable of the user's, or one that a record keeps for its
/// backward pass. So activations live exactly as long as something needs them.
///
/// Records are for one backward pass. A result remembers the pass to which its record belongs; after that pass a
/// gradient would not reach anything, and a backward pass that needs it throws.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <halftone/autodiff/engine/random_draws.hpp>
#include <halftone/exec/ranges.hpp>
#include <halftone/memory/arena.hpp>
#include <halftone/memory/gradient_listener.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Memory for the records of one step: chunks that are reused from step to step and not moved while in use.
class record_memory {
  public:
    void* take(std::size_t bytes);
    struct position {
        std::size_t chunk = 0, used = 0;
    };
    position mark() const { return {current_, used_}; }
    /// What was taken since `to` is free again.
    void rewind(const position& to) { current_ = to.chunk, used_ = to.used; }
    void rewind() { rewind({}); }
    static constexpr std::size_t chunk_bytes = 16384;

  private:
    struct chunk {
        alignas(std::max_align_t) std::byte data[chunk_bytes];
    };
    std::vector<std::unique_ptr<chunk>> chunks_;
    std::size_t current_ = 0, used_ = 0;
};

/// Whether a record is of an operation with one result: the gradient of the result is its member `dy`, and propagate(tape)
/// computes the gradients of the inputs from it.
template <class Record, class Tape>
concept has_one_result = requires(Record& r, Tape& tape) { r.propagate(tape); };

/// Runs a record's backward pass. A record with one result propagates dy if there is one, which is then released; any other
/// record defines backward(tape).
template <class Tape, class Record>
HALFTONE_INLINE void run_record(Tape& tape, Record& r) {
    if constexpr (has_one_result<Record, Tape>) {
        if (!r.dy.is_there()) return;
        r.propagate(tape);
        tape.finish(r.dy);
    } else {
        r.backward(tape);
    }
}

class graph {
  public:
    using index = std::int32_t;
    static constexpr index none = -1;

    explicit graph(memory_resource& memory) : resource_(&memory), arena_(memory, memory_kind::activation) {}
    graph(const graph&) = delete;
    graph& operator=(const graph&) = delete;

    // ---- blocks: reference-counted memory

    index make_block(std::size_t bytes);
    /// A block over memory of the user's.
    index make_block_over(const void* data, std::size_t bytes);
    void retain_block(index id) noexcept { ++blocks_[at(id)].references; }
    void release_block(index id) noexcept;
    std::byte* data(index block) const { return blocks_[at(block)].data; }
    bool is_shared(index block) const { return blocks_[at(block)].references > 1; }

    // ---- slots: what variables refer to

    /// A slot for a leaf, which accepts gradients in any pass.
    index make_leaf(index value, bool wants_gradient);
    /// A slot for the result of an operation that is being recorded.
    index make_result(index value, bool wants_gradient);
    void retain(index slot) noexcept { ++slots_[at(slot)].handles, ++slots_[at(slot)].references; }
    void release(index slot) noexcept {
        if (--slots_[at(slot)].handles == 0) release_block(std::exchange(slots_[at(slot)].value, none));
        release_reference(slot);
    }
    /// A reference keeps the slot and its gradient alive, but not its value.
    void retain_reference(index slot) noexcept { ++slots_[at(slot)].references; }
    void release_reference(index slot) noexcept;
    std::byte* value(index slot) const { return data(slots_[at(slot)].value); }
    index value_block(index slot) const { return slots_[at(slot)].value; }
    bool wants_gradient(index slot) const { return slots_[at(slot)].wants_gradient; }
    /// Whether the slot is not the result of an operation: it then accepts gradients in any pass.
    bool is_leaf(index slot) const { return slots_[at(slot)].pass == any_pass; }
    /// Whether the record that would use this slot's gradient has been dropped.
    bool is_consumed(index slot) const { return slots_[at(slot)].pass != any_pass && slots_[at(slot)].pass != pass_; }

    // ---- gradients

    bool has_gradient(index slot) const { return slots_[at(slot)].gradient != none; }
    std::byte* gradient(index slot) const { return data(slots_[at(slot)].gradient); }
    index gradient_block(index slot) const { return slots_[at(slot)].gradient; }
    /// Allocates a block for the slot's gradient, with undefined contents.
    std::byte* make_gradient(index slot, std::size_t bytes);
    /// Makes the value of `from` the gradient of `slot`, without a copy.
    void give_value(index from, index slot);
    /// Makes the gradient of `slot` the one that `from` has, without a copy.
    void share_gradient(index from, index slot);
    /// Replaces the gradient's block by a new one; returns the old one, which the caller releases.
    index replace_gradient(index slot, std::size_t bytes) {
        const index fresh = make_block(bytes);
        return std::exchange(slots_[at(slot)].gradient, fresh);
    }
    void drop_gradient(index slot) noexcept {
        const index block = std::exchange(slots_[at(slot)].gradient, none);
        if (block != none) release_block(block);
    }

    // ---- records

    struct record {
        const char* operation;
        void (*backward)(void* tape, void* payload);
        void (*destroy)(void* payload) noexcept;
        void* payload;
    };

    /// A record's address does not change until it is dropped.
    template <class Tape, class Payload>
    std::remove_cvref_t<Payload>& push(Payload&& payload) {
        using type = std::remove_cvref_t<Payload>;
        static_assert(sizeof(type) <= record_memory::chunk_bytes,
                      "halftone: a record of an operation is larger than a chunk of the tape");
        type* const place = new (room_for_record(sizeof(type))) type(std::forward<Payload>(payload));
        keep({type::operation::name,
              [](void* tape, void* p) { run_record(*static_cast<Tape*>(tape), *static_cast<type*>(p)); },
              [](void* p) noexcept { static_cast<type*>(p)->~type(); }, place});
        return *place;
    }

    /// Runs and drops all records, the last one first. If one throws, the remaining ones are dropped without being run.
    void run_backward(void* tape);

    /// Where records stand that are made from now on.
    struct place {
        std::size_t records;
        record_memory::position memory;
    };
    place mark() const { return {records_.size(), memory_.mark()}; }
    /// Within a backward pass, called by a record that has made further ones: runs and drops those made since `from`.
    void run_backward_to(const place& from) {
        run_records(from.records);
        memory_.rewind(from.memory);
    }

    /// Whether operations leave records; while an object of the class below lives, they compute alone.
    bool is_recording() const { return is_recording_; }
    class unrecorded {
      public:
        explicit unrecorded(graph& g) : graph_(&g), before_(std::exchange(g.is_recording_, false)) {}
        unrecorded(const unrecorded&) = delete;
        unrecorded& operator=(const unrecorded&) = delete;
        ~unrecorded() { graph_->is_recording_ = before_; }

      private:
        graph* graph_;
        bool before_;
    };

    /// Whether a checkpoint computes operations again, whose effects beside their results, such as on running statistics,
    /// have been had in the forward pass.
    bool is_recomputing() const { return is_recomputing_; }
    /// Sets it; returns what it was.
    bool set_recomputing(bool now) noexcept { return std::exchange(is_recomputing_, now); }

    /// Drops all records and begins a new pass.
    void clear() noexcept;
    std::size_t records() const { return records_.size(); }
    /// Whether a backward pass runs, which may compute operations again.
    bool runs_backward() const { return runs_backward_; }
    /// The number of the current pass, which ends when its records are dropped.
    std::int64_t pass() const { return pass_; }
    halftone::arena& arena() { return arena_; }
    memory_resource& memory() const { return *resource_; }

    /// If set, it is called for every operation.
    range_listener* listener = nullptr;
    /// If set, it is told when a backward function has ended, but not of those that others call.
    gradient_listener* gradients = nullptr;

    /// Whether gradients of this backward pass, or of the last one, were stored or read in a type with a short exponent
    /// range: such gradients underflow unless the loss is scaled.
    bool narrow_gradients = false;

    /// The random numbers of the next draw.
    random_draws random;

    // ---- where a pass is, for the message of an error

    /// Layer `index` of the list with this path begins: operations are in it until leave().
    void enter(const char* list, int index);
    void leave() noexcept;
    /// An operation of the forward pass begins.
    void note(const char* operation) { running_ = {operation, open_, no_record}; }
    /// The operation that began last, its pass, and the layer of a list in which it is: "linear (forward) of h.3"; empty:
    /// none has begun.
    std::string place_of_last() const;
    /// The layer of a list in which the operation that began last is, "h.3"; empty: none.
    std::string layer_of_last() const;
    /// Tells it to the listener, if there is one that asks for layers.
    void tell_layer() const {
        if (!ranges_exist || listener == nullptr || !listener->wants_origins()) return;
        if (const std::string layer = layer_of_last(); !layer.empty()) listener->layer(layer.c_str());
    }

    // ---- lifetime: the tape and every handle keep the graph alive, so that a variable may outlive its tape

    void hold() noexcept { ++holders_; }
    void let_go() noexcept {
        if (--holders_ == 0) delete this;
    }

  private:
    struct block {
        std::byte* data;
        std::size_t bytes;
        int references;
        bool is_owned;
    };
    struct slot {
        index value, gradient;
        int handles, references;
        std::int64_t pass;
        bool wants_gradient;
    };
    struct list_layer {
        const char* list;
        int index, outer;        ///< outer: the one around it, in list_layers_; -1: none
        std::size_t first, end;  ///< its records
    };
    static constexpr std::size_t no_record = static_cast<std::size_t>(-1);
    ~graph() { clear(); }

    static constexpr std::int64_t any_pass = -1;

    /// Runs and drops the last records until `left` are left.
    void run_records(std::size_t left);
    /// Reserves the list's memory first: otherwise an exception after the record was made would lose it.
    void* room_for_record(std::size_t bytes) {
        if (records_.size() == records_.capacity()) records_.reserve(2 * records_.size() + 16);
        return memory_.take(bytes);
    }
    void keep(const record& r) {
        if (open_ < 0 && records_.empty()) list_layers_.clear();  // those of the last pass
        records_.push_back(r);
    }

    static std::size_t at(index id) { return static_cast<std::size_t>(id); }
    template <class T>
    static index take(std::vector<T>& all, std::vector<index>& unused) {
        if (unused.empty()) {
            all.emplace_back();
            unused.reserve(all.capacity());  // so that returning never allocates
            return static_cast<index>(all.size() - 1);
        }
        const index id = unused.back();
        unused.pop_back();
        return id;
    }

    memory_resource* resource_;
    halftone::arena arena_;
    std::vector<block> blocks_;
    std::vector<slot> slots_;
    std::vector<index> free_blocks_, free_slots_;
    std::vector<record> records_;
    record_memory memory_;
    void* tape_ = nullptr;  // of the backward pass that runs, or ran last
    bool is_recording_ = true, runs_backward_ = false, is_recomputing_ = false;
    std::vector<list_layer> list_layers_;  // of this pass, in the order in which they began
    int open_ = -1;                        // the innermost one that has not ended
    struct {
        const char* operation = nullptr;
        int layer = -1;                  // in list_layers_
        std::size_t record = no_record;  // of an operation's backward pass
    } running_;
    std::int64_t pass_ = 0;
    int holders_ = 1;
};

inline std::string graph::layer_of_last() const {
    int layer = running_.layer;
    if (running_.record != no_record) {
        for (std::size_t i = 0; i < list_layers_.size(); ++i) {  // the last one: what was computed again began later
            const list_layer& l = list_layers_[i];
            if (l.first <= running_.record && running_.record < l.end) layer = static_cast<int>(i);
        }
    }
    if (layer < 0) return {};
    const list_layer& l = list_layers_[static_cast<std::size_t>(layer)];
    return std::string(l.list) + '.' + std::to_string(l.index);
}

/// An operation of the forward pass, told to the graph's listener.
struct forward_range : halftone::range {
    forward_range(graph& g, const char* operation) : range(g.listener, operation, halftone::pass::forward) {
        g.note(operation);
        g.tell_layer();
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/autodiff/engine/graph.body.hpp>
#endif
