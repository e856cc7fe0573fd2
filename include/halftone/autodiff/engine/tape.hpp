// SPDX-License-Identifier: MIT
/// \file
/// Contexts, which operations are called in: a tape records operations for a backward pass, an inference context does
/// not, and `autocast` (autodiff/engine/region.hpp) makes a region of either with another precision policy.
///
///     ht::tape tape{device};
///     auto loss = model.loss(tape, batch);
///     tape.backward(scaler.scale(loss), acc);        // gradients go to acc; the tape is empty again
///
///     ht::inference eval{device};
///     auto logits = model.logits(eval, tokens);      // the same code; records nothing
///
/// There is no thread-local state: a function depends only on the context that it is passed.
#pragma once

#include <halftone/autodiff/engine/region.hpp>
#include <halftone/autodiff/engine/variable.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/memory/gradient_slabs.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// What a device begins with as the listener of operations on it, such as that of a plan; nullptr: none.
template <class Device>
range_listener* listener_of(const Device& device) {
    if constexpr (requires { device.listener(); }) {
        return device.listener();
    } else {
        return nullptr;
    }
}

}  // namespace detail

/// Whether a context records operations for a backward pass.
enum class recording { on, off };

/// What tapes and inference contexts share: memory for results, and the device.
template <class Device, recording Mode>
class basic_context {
  public:
    using policy = as_given;
    using device_type = Device;
    static constexpr bool records = Mode == recording::on;

    explicit basic_context(Device& device) : device_(&device), graph_(new detail::graph(device.memory())) {
        listen(nullptr);
    }
    basic_context(const basic_context&) = delete;
    basic_context& operator=(const basic_context&) = delete;
    ~basic_context() {
        if (owns_records_) graph_->clear();
        graph_->let_go();
    }

    Device& device() const { return *device_; }
    detail::graph& graph() const { return *graph_; }
    /// The arena of results: bytes in use, and their peak since the last reset.
    halftone::arena& memory() const { return graph_->arena(); }

    /// From now on `listener` is called for every operation; nullptr: no listener, or the device's own, if it has one.
    void listen(range_listener* listener) {
        graph_->listener = listener != nullptr ? listener : detail::listener_of(*device_);
    }
    /// Reports a forward operation to the listener, until the returned object is destroyed. `Where` names the layer
    /// (its roles, or the region's policy) for contexts that use it.
    template <class Where = void>
    detail::forward_range range(const char* operation) const { return {*graph_, operation}; }

    /// Memory for a result of an operation, with undefined contents. Throws shape_error for an invalid shape.
    template <class T, int Rank>
    variable<T, Rank> make(const shape<Rank>& s, bool wants_gradient) {
        check_shape("tape", s);
        const auto block = graph_->make_block(static_cast<std::size_t>(s.size()) * sizeof(T));
        return {*graph_, graph_->make_result(block, records && wants_gradient), s};
    }

    /// A result in the memory of `values`, for an operation that has nothing to do.
    template <class Where = void, class T, int Rank>
    variable<T, Rank> make_over(const char*, const const_view<T, Rank>& values, bool wants_gradient) {
        const auto block = graph_->make_block_over(values.data(), static_cast<std::size_t>(values.size()) * sizeof(T));
        return {*graph_, graph_->make_result(block, records && wants_gradient), values.shape()};
    }
    /// The result of a custom operation, Op, on these inputs, in the same memory.
    template <class Op, class T, int Rank, class... Inputs>
    variable<T, Rank> make_result(const variable<T, Rank>& given, bool wants_gradient, const Inputs&...) {
        const auto block = graph_->value_block(given.slot());
        graph_->retain_block(block);
        return {*graph_, graph_->make_result(block, wants_gradient), given.shape()};
    }

    /// A constant variable over memory of the user's, which must stay valid until the backward pass has run. It has no
    /// gradient. Throws shape_error for a view that is not contiguous.
    template <class T, int Rank>
    variable<std::remove_const_t<T>, Rank> constant(const view<T, Rank>& values) {
        return over(values, false);
    }
    /// A leaf over memory of the user's, which must stay valid until the backward pass has run: an input whose gradient
    /// is wanted, see gradient(). Throws shape_error for a view that is not contiguous. It may take part in any number
    /// of backward passes, whose gradients are added.
    template <class T, int Rank>
    variable<std::remove_const_t<T>, Rank> leaf(const view<T, Rank>& values) {
        return over(values, true);
    }
    /// A constant whose values may be in host memory: on a GPU they are copied to the device then, in order with its
    /// other work, and the host memory may be changed on return. Values that the device can read, as all on a CPU, are not
    /// copied: they must stay valid and unchanged until the backward pass has run.
    template <class T, int Rank>
    variable<std::remove_const_t<T>, Rank> to_device(const view<T, Rank>& values) {
        if (device_->reaches(values.data())) return constant(values);
        check_contiguous(values);
        auto copy = make<std::remove_const_t<T>>(values.shape(), false);
        device_->upload(copy.view().data(), values.data(), static_cast<std::size_t>(values.size()) * sizeof(T));
        return copy;
    }
    /// A variable's value as a constant, without a copy and without a gradient; also for passing a value on to a later
    /// step. Throws argument_error for a variable of another context.
    template <class T, int Rank>
    variable<T, Rank> detach(const variable<T, Rank>& v) {
        if (&v.graph() != graph_) fail<argument_error>("tape: detach of a variable that belongs to another context");
        const auto block = graph_->value_block(v.slot());
        graph_->retain_block(block);
        return {*graph_, graph_->make_leaf(block, false), v.shape()};
    }

  protected:
    /// A context with the memory of another one.
    basic_context(Device& device, detail::graph& others) : device_(&device), graph_(&others), owns_records_(false) {
        graph_->hold();
    }

  private:
    template <class T, int Rank>
    static void check_contiguous(const view<T, Rank>& values) {
        detail::expect_contiguous("tape", "an input", values);
    }
    template <class T, int Rank>
    variable<std::remove_const_t<T>, Rank> over(const view<T, Rank>& values, bool wants_gradient) {
        check_contiguous(values);
        const auto block = graph_->make_block_over(values.data(), static_cast<std::size_t>(values.size()) * sizeof(T));
        return {*graph_, graph_->make_leaf(block, records && wants_gradient), values.shape()};
    }

    Device* device_;
    detail::graph* graph_;
    bool owns_records_ = true;
};

/// A context that records nothing: operations compute, nothing is kept for a backward pass, and dropout is inactive.
template <class Device>
class inference : public basic_context<Device, recording::off> {
  public:
    using basic_context<Device, recording::off>::basic_context;
    /// The context itself; operations call root() on any context.
    inference& root() { return *this; }
};
template <class Device>
inference(Device&) -> inference<Device>;

namespace detail {

template <class T>
struct begin_gradient {
    T* to;
    gradient_seed seed;
    using wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    HALFTONE_HD void operator()() const { *to = T(seed.value<wide>()); }
};

}  // namespace detail

/// The default kind of tape. Other kinds have headers of their own and are chosen where a tape is made:
/// ht::tape tape{device, ht::watched}.
struct plain_tape {};

/// A context that records operations and computes the gradients of a loss; Kind adds further features.
template <class Device, class Kind = plain_tape>
class tape;

/// The kind of ht::double_backward; see autodiff/double_backward/double_backward.hpp.
struct double_backward_tape {};

/// A context that records operations for one backward pass at a time, and reuses its memory in the next. The device
/// must outlive it. Used by one thread at a time.
template <class Device>
class tape<Device, plain_tape> : public basic_context<Device, recording::on> {
  public:
    using basic_context<Device, recording::on>::basic_context;
    /// The tape itself; operations call root() on any context.
    tape& root() { return *this; }

    /// Records an operation: a struct with `using operation = op::…` and `void backward(tape&)` that holds what the
    /// backward pass needs.
    template <class Record>
    void record(Record&& r) {
        if (this->graph().is_recording()) this->graph().template push<tape>(std::forward<Record>(r));
    }

    /// How a pass treats the gradients of a store's parameters.
    struct gradient_sink {
        gradient_slabs* slabs = nullptr;
        bool is_left_out = false;  ///< without slabs: the parameters are constants to this loss
    };

    /// Computes the gradients of `loss` (a scalar, optionally weighted or scaled), adds those of parameters to `acc`,
    /// and empties the tape. Gradients of leaves remain available by gradient() as long as their variables live.
    ///
    /// Throws argument_error for a loss of another tape or one that depends on no parameter and no leaf, and
    /// state_error for a loss that an earlier pass has consumed; nothing is changed then. An exception from an
    /// operation's backward function empties the tape as well, and leaves `acc` and the leaves with some gradients
    /// added and others not.
    template <class Loss, class Accumulator>
    void backward(const Loss& loss, Accumulator& acc) {
        check_loss(loss_variable(loss));
        acc.receive(loss);
        const told_operations told(this->graph(), acc);
        run(loss, [&acc](const store& owner) -> gradient_sink {
            gradient_slabs* const slabs = acc.find(owner);
            if constexpr (requires { acc.leaves_out(owner); }) {
                return {slabs, slabs == nullptr && acc.leaves_out(owner)};
            } else {
                return {slabs};
            }
        });
        if constexpr (requires { acc.note_narrow_gradients(); }) {
            if (this->graph().narrow_gradients) acc.note_narrow_gradients();
        }
        if constexpr (requires { acc.end_pass(); }) acc.end_pass();
    }
    /// Computes the gradients of a loss that depends on leaves and on no parameters, and empties the tape.
    template <class Loss>
    void backward(const Loss& loss) {
        check_loss(loss_variable(loss));
        run(loss, [](const store&) -> gradient_sink { return {}; });
    }

    /// Gradients as variables need another kind of tape: fails with a message.
    template <class Loss, class... Targets>
    void gradients(const Loss&, const Targets&...) {
        static_assert(
            sizeof(Loss) == 0,
            "halftone: tape: this one gives gradients to an accumulator and to leaves, by backward(loss, acc) "
            "and gradient(x); for gradients that are variables, to be differentiated again, write ht::tape "
            "tape{device, ht::double_backward} and include <halftone/autodiff/double_backward/double_backward.hpp>");
    }

    /// Sets the seed of the tape's random numbers (dropout), beginning with pass 0; the default seed is 0. To be called
    /// between steps: on a GPU it waits if anything was drawn before, and so does random_state(). Throws state_error if
    /// a forward pass is recorded, because its backward pass has to draw the same numbers again.
    void seed(std::uint64_t seed) { restore({seed, 0}); }
    /// The state from which the random numbers of the next pass follow.
    halftone::random_state random_state() const { return this->graph().random.state(this->graph().memory()); }
    /// The next pass draws the same random numbers as the one after this state did, and so on. Throws as seed() does,
    /// unless `state` is the current state.
    void restore(const halftone::random_state& state) {
        if (this->graph().records() != 0) {
            if (state == random_state()) return;
            fail<state_error>(
                "tape: seed() or restore() between a forward pass and its backward pass, which draws the same random "
                "numbers again; call it before the forward pass, or after backward() or clear()");
        }
        this->graph().random.restore(this->graph().memory(), state);
    }

    /// Discards all records: after a forward pass that threw, or whose gradients are not needed.
    void clear() { this->graph().clear(); }

    /// The gradient of a leaf from the backward passes so far. Throws state_error if there is none.
    template <class T, int Rank>
    const_view<T, Rank> gradient(const variable<T, Rank>& v) const {
        if (&v.graph() != &this->graph())
            fail<argument_error>("tape: the gradient of a variable that is on another tape");
        if (!this->graph().has_gradient(v.slot()))
            fail<state_error>("tape: no gradient arrived at this variable of shape ", v.shape());
        return {reinterpret_cast<const T*>(this->graph().gradient(v.slot())), v.shape()};
    }

    // ---- called by the backward functions of operations

    /// Where a gradient is written, and whether it overwrites or adds. Converts to false if no gradient is wanted.
    template <class T>
    struct target {
        T* data = nullptr;
        write_mode mode = write_mode::overwrite;
        square_sum* squares = nullptr;  ///< for a parameter's gradient: see gradient_slabs::place
        square_sum squares_before{};
        explicit operator bool() const { return data != nullptr; }
    };
    /// Whether v takes a gradient. Throws argument_error if it is on another tape, and state_error if the record of the
    /// operation that made it was consumed by an earlier backward pass.
    template <class T, int Rank>
    bool takes_gradient(const gradient_of<T, Rank>& v) const {
        if (!v.is_wanted()) return false;
        if (&v.graph() != &this->graph()) fail<argument_error>("tape: an operation has inputs on two tapes");
        if (this->graph().is_consumed(v.slot())) {
            fail<state_error>("tape: a gradient arrives at a result of shape ", v.shape(),
                              " whose operation an earlier backward pass has consumed; compute it again, or detach it");
        }
        return true;
    }
    /// Where the gradient of v is written; the first contribution overwrites, later ones add.
    template <class T, int Rank>
    target<T> gradient_target(const gradient_of<T, Rank>& v) {
        detail::graph& g = this->graph();
        if (!takes_gradient(v)) return {};
        if (!g.is_leaf(v.slot())) note_gradients_as<T>();
        const std::size_t bytes = static_cast<std::size_t>(v.shape().size()) * sizeof(T);
        if (!g.has_gradient(v.slot()))
            return {reinterpret_cast<T*>(g.make_gradient(v.slot(), bytes)), write_mode::overwrite};
        if (g.is_shared(g.gradient_block(v.slot()))) {
            const std::byte* old = g.gradient(v.slot());
            const auto shared = g.replace_gradient(v.slot(), bytes);
            this->device().copy(g.gradient(v.slot()), old, bytes);
            g.release_block(shared);
        }
        return {reinterpret_cast<T*>(g.gradient(v.slot())), write_mode::add};
    }
    /// Notes that gradients are rounded to T; an optimizer without a scaler then reports types of short range
    /// (optim/optimizer.hpp).
    template <class T>
    void note_gradients_as() {
        if constexpr (narrow_range<T>) this->graph().narrow_gradients = true;
    }
    /// Where the gradient of a parameter is written; nowhere for a frozen one.
    template <class Storage, int Rank>
    target<typename Storage::accumulate> gradient_target(const parameter<Storage, Rank>& p) {
        static_assert(!has_sparse_gradient<Storage>,
                      "halftone: a table with a sparse gradient (ht::nn::sparse_embedding) can only be looked up: the "
                      "gradient of this operation reaches every row, as that of a tied head does; take "
                      "ht::nn::embedding, whose table has a dense gradient");
        if (p.is_frozen()) return {};
        gradient_slabs* const slabs = slabs_of(p.owner());
        if (slabs == nullptr) return {};
        const gradient_slabs::place place = slabs->claim(p.entry());
        return {reinterpret_cast<typename Storage::accumulate*>(place.data),
                place.is_first ? write_mode::overwrite : write_mode::add, place.squares, place.squares_before};
    }

    /// Makes `value`, which was computed for this purpose, the gradient of v without a copy; v must have no gradient
    /// yet.
    template <class T, int Rank>
    void give_gradient(const variable<T, Rank>& value, const gradient_of<T, Rank>& v) {
        if (!this->graph().is_leaf(v.slot())) note_gradients_as<T>();
        this->graph().give_value(value.slot(), v.slot());
    }

    /// Where the sparse gradient of a table is written, with room for the rows of `tokens` lookups.
    template <class Storage, int Rank>
    gradient_slabs::row_place<typename Storage::accumulate> row_target(const parameter<Storage, Rank>& p,
                                                                       extent tokens) {
        if (p.is_frozen()) return {};
        gradient_slabs* const slabs = slabs_of(p.owner());
        if (slabs == nullptr) return {};
        return slabs->claim_rows(this->device(), p, tokens);
    }

    /// The last call of a record's backward function: the gradient of its result is no longer needed and is freed.
    template <class T, int Rank>
    void finish(const gradient_of<T, Rank>& output) {
        this->graph().drop_gradient(output.slot());
    }

  protected:
    /// Where the gradients of a store's parameters are written in this pass; nullptr if the accumulator leaves them
    /// out.
    gradient_slabs* slabs_of(const store& owner) const {
        const gradient_sink sink = find_(sink_, owner);
        if (sink.slabs == nullptr && !sink.is_left_out) {
            fail<state_error>(
                "tape: the loss depends on parameters that the accumulator was not made for; name their model in "
                "ht::accumulator acc{...}, or take them for constants: acc.leave_out(model)");
        }
        return sink.slabs;
    }

    template <class T>
    void check_loss(const variable<T, 0>& loss) const {
        const detail::graph& g = this->graph();
        if (&loss.graph() != &g) fail<argument_error>("tape: backward of a loss that is on another tape");
        if (!loss.wants_gradient())
            fail<argument_error>("tape: backward of a loss that depends on no parameter and no leaf");
        if (g.is_consumed(loss.slot()))
            fail<state_error>(
                "tape: backward of a loss that was on the tape before; a backward pass consumes the tape");
        if (g.records() == 0) fail<state_error>("tape: backward of an empty tape");
    }

  private:
    /// While it lives, the accumulator's listener is told of operations that end.
    struct told_operations {
        detail::graph& graph;
        template <class Accumulator>
        told_operations(detail::graph& g, Accumulator& acc) : graph(g) {
            if constexpr (requires { acc.listener(); }) graph.gradients = acc.listener();
        }
        told_operations(const told_operations&) = delete;
        told_operations& operator=(const told_operations&) = delete;
        ~told_operations() { graph.gradients = nullptr; }
    };

    template <class Loss, class Find>
    void run(const Loss& loss, const Find& find) {
        const auto& scalar = loss_variable(loss);
        using T = typename std::remove_cvref_t<decltype(scalar)>::value_type;
        detail::graph& g = this->graph();
        this->device().run(detail::begin_gradient<T>{reinterpret_cast<T*>(g.make_gradient(scalar.slot(), sizeof(T))),
                                                     loss_seed(loss)});
        g.narrow_gradients = false;
        sink_ = &find;
        find_ = [](const void* f, const store& owner) { return (*static_cast<const Find*>(f))(owner); };
        g.run_backward(this);
    }

    const void* sink_ = nullptr;
    gradient_sink (*find_)(const void* sink, const store& owner) = nullptr;
};
template <class Device>
tape(Device&) -> tape<Device>;

/// A variable's value as a constant without a gradient, in any context: a tape, a region of one, an inference context.
/// Shares the memory. Throws argument_error for a variable of another context.
template <class Context, class T, int Rank>
    requires requires(Context& context) { context.root(); }
variable<T, Rank> detach(Context&& context, const variable<T, Rank>& v) {
    return context.root().detach(v);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
