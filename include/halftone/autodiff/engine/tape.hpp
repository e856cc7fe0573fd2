// SPDX-License-Identifier: MIT
/// \file
/// Contexts: what an operation is called in. A tape records operations for a backward pass, an inference context does
/// not, and `autocast` (autodiff/engine/region.hpp) makes a region of either with another precision policy.
///
///     ht::tape tape{device};
///     auto loss = model.loss(tape, batch);
///     tape.backward(scaler.scale(loss), acc);        // gradients go to acc; the tape is empty again
///
///     ht::inference eval{device};
///     auto logits = model.logits(eval, tokens);      // the same code; keeps nothing
///
/// There is no thread-local state; a function that is handed a context knows all there is to know.
#pragma once

#include <halftone/autodiff/engine/region.hpp>
#include <halftone/autodiff/engine/variable.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/memory/gradient_slabs.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Whether a context keeps what a backward pass needs.
enum class recording { on, off };

/// What tapes and inference contexts share: memory for results, and access to the device.
template <class Device, recording Mode>
class basic_context {
  public:
    using policy = as_given;
    using device_type = Device;
    static constexpr bool records = Mode == recording::on;

    explicit basic_context(Device& device) : device_(&device), graph_(new detail::graph(device.memory())) {}
    basic_context(const basic_context&) = delete;
    basic_context& operator=(const basic_context&) = delete;
    ~basic_context() {
        if (owns_records_) graph_->clear();
        graph_->let_go();
    }

    Device& device() const { return *device_; }
    detail::graph& graph() const { return *graph_; }
    /// Bytes of results in use, and their peak since the last reset.
    halftone::arena& memory() const { return graph_->arena(); }

    /// From now on `listener` is told of every operation; nullptr: nobody is.
    void listen(range_listener* listener) { graph_->listener = listener; }
    /// The range of a forward operation, while the result lives. `Where` tells the layer (its roles, or the region's
    /// policy) to contexts that ask for it.
    template <class Where = void>
    halftone::range range(const char* operation) const { return {graph_->listener, operation, pass::forward}; }

    /// A result of an operation, with undefined contents. Throws shape_error for a shape that is none.
    template <class T, int Rank>
    variable<T, Rank> make(const shape<Rank>& s, bool wants_gradient) {
        check_shape("tape", s);
        const auto block = graph_->make_block(static_cast<std::size_t>(s.size()) * sizeof(T));
        return {*graph_, graph_->make_result(block, records && wants_gradient), s};
    }

    /// A result that lies where `values` do: of an operation that has nothing to do.
    template <class Where = void, class T, int Rank>
    variable<T, Rank> make_over(const char*, const const_view<T, Rank>& values, bool wants_gradient) {
        const auto block = graph_->make_block_over(values.data(), static_cast<std::size_t>(values.size()) * sizeof(T));
        return {*graph_, graph_->make_result(block, records && wants_gradient), values.shape()};
    }
    /// What an operation of the user's own, Op, has given of these inputs, as its result: the same memory.
    template <class Op, class T, int Rank, class... Inputs>
    variable<T, Rank> make_result(const variable<T, Rank>& given, bool wants_gradient, const Inputs&...) {
        const auto block = graph_->value_block(given.slot());
        graph_->retain_block(block);
        return {*graph_, graph_->make_result(block, wants_gradient), given.shape()};
    }

    /// A variable over memory that the user owns and keeps, until the backward pass is through. No gradient flows into
    /// it. Throws shape_error for a view that is not contiguous.
    template <class T, int Rank>
    variable<std::remove_const_t<T>, Rank> constant(const view<T, Rank>& values) {
        return over(values, false);
    }
    /// The same, for an input whose gradient is wanted: see gradient(). It may take part in any number of backward
    /// passes, whose gradients add up.
    template <class T, int Rank>
    variable<std::remove_const_t<T>, Rank> leaf(const view<T, Rank>& values) {
        return over(values, true);
    }
    /// A constant whose values may lie in host memory: on a GPU a copy is brought over then, in order with its other
    /// work, and the host memory is the caller's again on return. Values that the device can reach are used where they
    /// are.
    template <class T, int Rank>
    variable<std::remove_const_t<T>, Rank> to_device(const view<T, Rank>& values) {
        if (device_->reaches(values.data())) return constant(values);
        check_contiguous(values);
        auto copy = make<std::remove_const_t<T>>(values.shape(), false);
        device_->upload(copy.view().data(), values.data(), static_cast<std::size_t>(values.size()) * sizeof(T));
        return copy;
    }
    /// The same value, but no gradient flows through it: also what carries a value on to a later step. Throws
    /// argument_error for a variable of another context.
    template <class T, int Rank>
    variable<T, Rank> detach(const variable<T, Rank>& v) {
        if (&v.graph() != graph_) fail<argument_error>("tape: detach of a variable that belongs to another context");
        const auto block = graph_->value_block(v.slot());
        graph_->retain_block(block);
        return {*graph_, graph_->make_leaf(block, false), v.shape()};
    }

  protected:
    /// Over the memory of another context.
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

/// A context that records nothing: operations compute, keep nothing for a backward pass, and dropout is inactive.
template <class Device>
class inference : public basic_context<Device, recording::off> {
  public:
    using basic_context<Device, recording::off>::basic_context;
    /// The context itself: what operations ask of any context.
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

/// A tape that records and does no more. Other kinds have headers of their own and are named where a tape is made:
/// ht::tape tape{device, ht::watched}.
struct plain_tape {};

/// A context that records operations, for the gradients of a loss; Kind says what more it does.
template <class Device, class Kind = plain_tape>
class tape;

/// What ht::double_backward stands for: autodiff/double_backward/double_backward.hpp.
struct double_backward_tape {};

/// A context that records operations for one backward pass at a time, whose memory it reuses in the next. It refers
/// to the device, which must live longer. One thread at a time.
template <class Device>
class tape<Device, plain_tape> : public basic_context<Device, recording::on> {
  public:
    using basic_context<Device, recording::on>::basic_context;
    /// The tape itself: what operations ask of any context.
    tape& root() { return *this; }

    /// Keeps what an operation's backward pass needs: a type with `using operation = op::…` and `void backward(tape&)`.
    template <class Record>
    void record(Record&& r) {
        this->graph().template push<tape>(std::forward<Record>(r));
    }

    /// What a pass does with the gradients of a store's parameters.
    struct gradient_sink {
        gradient_slabs* slabs = nullptr;
        bool is_left_out = false;  ///< where there are no slabs: the parameters are constants to this loss
    };

    /// Computes the gradients of `loss` (a scalar, perhaps weighted or scaled), adds those of parameters into `acc`,
    /// and empties the tape. Gradients of leaves stay for gradient() as long as their variables do.
    ///
    /// Throws argument_error for a loss of another tape or one that nothing learnable leads to, state_error for a loss
    /// that an earlier pass has consumed; nothing is changed then. What an operation throws in the middle of the pass
    /// empties the tape as well, and leaves `acc` and the leaves with some gradients added and others not.
    template <class Loss, class Accumulator>
    void backward(const Loss& loss, Accumulator& acc) {
        check_loss(loss_variable(loss));
        acc.receive(loss);
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
    }
    /// The same for a loss that depends on no parameters.
    template <class Loss>
    void backward(const Loss& loss) {
        check_loss(loss_variable(loss));
        run(loss, [](const store&) -> gradient_sink { return {}; });
    }

    /// Gradients that are variables are given by another kind of tape.
    template <class Loss, class... Targets>
    void gradients(const Loss&, const Targets&...) {
        static_assert(
            sizeof(Loss) == 0,
            "halftone: tape: this one gives gradients to an accumulator and to leaves, by backward(loss, acc) "
            "and gradient(x); for gradients that are variables, to be differentiated again, write ht::tape "
            "tape{device, ht::double_backward} and include <halftone/autodiff/double_backward/double_backward.hpp>");
    }

    /// From now on random numbers (of dropout) are those of this seed, beginning with its pass 0. A tape that is told
    /// nothing has seed 0. To be called between steps: on a GPU it waits where something was drawn before, and so does
    /// random_state(). Throws state_error where a forward pass is recorded, whose backward pass is to draw its numbers
    /// again.
    void seed(std::uint64_t seed) { restore({seed, 0}); }
    /// What the random numbers of the next pass follow from.
    halftone::random_state random_state() const { return this->graph().random.state(this->graph().memory()); }
    /// The next pass draws as the one did that came after this state, and so on. Throws as seed() does, unless this is
    /// the present state.
    void restore(const halftone::random_state& state) {
        if (this->graph().records() != 0) {
            if (state == random_state()) return;
            fail<state_error>(
                "tape: seed() or restore() between a forward pass and its backward pass, which draws the same random "
                "numbers again; call it before the forward pass, or after backward() or clear()");
        }
        this->graph().random.restore(this->graph().memory(), state);
    }

    /// Forgets what was recorded: after a forward pass that threw, or one that nobody wants the gradients of.
    void clear() { this->graph().clear(); }

    /// The gradient that backward passes have left at a leaf. Throws state_error where none arrived.
    template <class T, int Rank>
    const_view<T, Rank> gradient(const variable<T, Rank>& v) const {
        if (&v.graph() != &this->graph())
            fail<argument_error>("tape: the gradient of a variable that lies on another tape");
        if (!this->graph().has_gradient(v.slot()))
            fail<state_error>("tape: no gradient arrived at this variable of shape ", v.shape());
        return {reinterpret_cast<const T*>(this->graph().gradient(v.slot())), v.shape()};
    }

    // ---- for the backward functions of operations

    /// Where a gradient goes, and whether it is the first one there. False: no gradient is wanted.
    template <class T>
    struct target {
        T* data = nullptr;
        write_mode mode = write_mode::overwrite;
        square_sum* squares = nullptr;  ///< of a parameter's gradient: gradient_slabs::place has both
        square_sum squares_before{};
        explicit operator bool() const { return data != nullptr; }
    };
    /// Whether v takes a gradient. Throws argument_error where it lies on another tape, state_error where the operation
    /// that made it was consumed by an earlier backward pass.
    template <class T, int Rank>
    bool takes_gradient(const gradient_of<T, Rank>& v) const {
        if (!v.is_wanted()) return false;
        if (&v.graph() != &this->graph()) fail<argument_error>("tape: an operation has inputs on two tapes");
        if (this->graph().is_consumed(v.slot())) {
            fail<state_error>("tape: a gradient arrives at a result of shape ", v.shape(),
                              " whose operation an earlier backward pass has consumed; compute it anew, or detach it");
        }
        return true;
    }
    /// Where the gradient of v goes: nowhere, where none is wanted; the first contribution overwrites, later ones add.
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
    /// Gradients are rounded to T on their way: what scales no loss is told (optim/optimizer.hpp).
    template <class T>
    void note_gradients_as() {
        if constexpr (narrow_range<T>) this->graph().narrow_gradients = true;
    }
    /// Where the gradient of a parameter goes: nowhere for a frozen one.
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

    /// Makes a value that was computed for the purpose the gradient of v, which has none yet, without a copy.
    template <class T, int Rank>
    void give_gradient(const variable<T, Rank>& value, const gradient_of<T, Rank>& v) {
        if (!this->graph().is_leaf(v.slot())) note_gradients_as<T>();
        this->graph().give_value(value.slot(), v.slot());
    }

    /// Where the sparse gradient of a table goes, with room for the rows of so many tokens.
    template <class Storage, int Rank>
    gradient_slabs::row_place<typename Storage::accumulate> row_target(const parameter<Storage, Rank>& p,
                                                                       extent tokens) {
        if (p.is_frozen()) return {};
        gradient_slabs* const slabs = slabs_of(p.owner());
        if (slabs == nullptr) return {};
        return slabs->claim_rows(this->device(), p, tokens);
    }

    /// What a record does last: its output's gradient has been used, and its memory can go.
    template <class T, int Rank>
    void finish(const gradient_of<T, Rank>& output) {
        this->graph().drop_gradient(output.slot());
    }

  protected:
    /// Where the gradients of a store's parameters go in this pass; nullptr where the accumulator leaves them out.
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
        if (&loss.graph() != &g) fail<argument_error>("tape: backward of a loss that lies on another tape");
        if (!loss.wants_gradient())
            fail<argument_error>("tape: backward of a loss that depends on no parameter and no leaf");
        if (g.is_consumed(loss.slot()))
            fail<state_error>(
                "tape: backward of a loss that was on the tape before; a backward pass consumes the tape");
        if (g.records() == 0) fail<state_error>("tape: backward of an empty tape");
    }

  private:
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

/// The same value, but no gradient flows through it, in any context: a tape, a region of one, an inference context.
/// Shares the memory. Throws argument_error for a variable of another context.
template <class Context, class T, int Rank>
    requires requires(Context& context) { context.root(); }
variable<T, Rank> detach(Context&& context, const variable<T, Rank>& v) {
    return context.root().detach(v);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
