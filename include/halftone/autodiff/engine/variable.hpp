// SPDX-License-Identifier: MIT
/// \file
/// Handles to values and gradients on a tape.
///
/// `variable<T, Rank>` is a result with its value; copying it copies the handle. Its gradient has type T as well.
/// `gradient_of<T, Rank>` refers to the gradient alone and does not keep the value alive: records use it for their
/// results. `weighted<variable>` is a loss times a factor, at no cost: the factor becomes part of the gradient with
/// which the backward pass begins.
///
///     auto loss = model.loss(tape, batch);
///     tape.backward(loss / 4, acc);
///     std::cout << loss.item();
#pragma once

#include <halftone/autodiff/engine/graph.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Refers to a graph and holds one reference in it; Slot is the kind of reference.
template <class Slot>
class handle {
  public:
    handle() = default;
    /// Takes over a reference of the caller's.
    handle(detail::graph& owner, graph::index slot) noexcept : graph_(&owner), slot_(slot) { owner.hold(); }
    handle(const handle& other) noexcept : graph_(other.graph_), slot_(other.slot_) {
        if (graph_ == nullptr) return;
        graph_->hold();
        Slot::retain(*graph_, slot_);
    }
    handle(handle&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)), slot_(other.slot_) {}
    handle& operator=(handle other) noexcept {
        std::swap(graph_, other.graph_);
        std::swap(slot_, other.slot_);
        return *this;
    }
    ~handle() {
        if (graph_ == nullptr) return;
        Slot::release(*graph_, slot_);
        graph_->let_go();
    }

    detail::graph& graph() const noexcept { return *graph_; }
    detail::graph::index slot() const noexcept { return slot_; }
    bool is_empty() const noexcept { return graph_ == nullptr; }

  private:
    detail::graph* graph_ = nullptr;
    detail::graph::index slot_ = detail::graph::none;
};

struct value_reference {
    static void retain(graph& g, graph::index slot) noexcept { g.retain(slot); }
    static void release(graph& g, graph::index slot) noexcept { g.release(slot); }
};
struct slot_reference {
    static void retain(graph& g, graph::index slot) noexcept { g.retain_reference(slot); }
    static void release(graph& g, graph::index slot) noexcept { g.release_reference(slot); }
};

}  // namespace detail

/// A result of an operation in a context: a value in the device's memory, and a place on the tape. Copies refer to the
/// same result, whose memory is freed when no copy and no record refers to it any more. A variable must not outlive its
/// context.
template <class T, int Rank>
class variable {
  public:
    using value_type = T;
    static constexpr int rank = Rank;

    variable() = default;
    variable(detail::graph& owner, detail::graph::index slot, const halftone::shape<Rank>& shape) noexcept
        : handle_(owner, slot), shape_(shape) {}

    const halftone::shape<Rank>& shape() const noexcept { return shape_; }
    extent size() const { return shape_.size(); }
    /// The value as a view of the device's memory.
    halftone::view<T, Rank> view() const {
        return {reinterpret_cast<T*>(handle_.graph().value(handle_.slot())), shape_};
    }
    /// Whether it was default-constructed or moved from.
    bool is_empty() const noexcept { return handle_.is_empty(); }
    /// Whether a backward pass computes its gradient: whether it depends on a parameter, or on a leaf that takes one.
    bool wants_gradient() const { return handle_.graph().wants_gradient(handle_.slot()); }
    /// The value of a scalar. On a GPU it waits for the device.
    T item() const
        requires(Rank == 0)
    {
        T value;
        handle_.graph().memory().read(&value, view().data(), sizeof(T));
        return value;
    }
    detail::graph& graph() const noexcept { return handle_.graph(); }
    detail::graph::index slot() const noexcept { return handle_.slot(); }

  private:
    detail::handle<detail::value_reference> handle_;
    halftone::shape<Rank> shape_{};
};

/// The gradient of a variable, without its value.
template <class T, int Rank>
class gradient_of {
  public:
    gradient_of() = default;
    explicit gradient_of(const variable<T, Rank>& v) noexcept : handle_(v.graph(), v.slot()), shape_(v.shape()) {
        v.graph().retain_reference(v.slot());
    }

    const halftone::shape<Rank>& shape() const noexcept { return shape_; }
    /// Whether it was default-constructed or moved from.
    bool is_empty() const noexcept { return handle_.is_empty(); }
    bool is_wanted() const { return handle_.graph().wants_gradient(handle_.slot()); }
    bool is_there() const { return handle_.graph().has_gradient(handle_.slot()); }
    halftone::view<T, Rank> view() const {
        return {reinterpret_cast<T*>(handle_.graph().gradient(handle_.slot())), shape_};
    }
    detail::graph& graph() const noexcept { return handle_.graph(); }
    detail::graph::index slot() const noexcept { return handle_.slot(); }

  private:
    detail::handle<detail::slot_reference> handle_;
    halftone::shape<Rank> shape_{};
};

// Views of its values, or of its gradient, like those in tensor/view.hpp.

/// The values as a matrix: all axes but the last are combined.
template <class T, int Rank>
view<T, 2> as_rows(const variable<T, Rank>& v) {
    return as_rows(v.view());
}
/// The gradient as a matrix in the same way.
template <class T, int Rank>
view<T, 2> as_rows(const gradient_of<T, Rank>& v) {
    return as_rows(v.view());
}
/// The values as one row.
template <class T, int Rank>
view<T, 1> flatten(const variable<T, Rank>& v) {
    return flatten(v.view());
}
/// The gradient as one row.
template <class T, int Rank>
view<T, 1> flatten(const gradient_of<T, Rank>& v) {
    return flatten(v.view());
}

/// A loss times a factor.
template <class Variable>
struct weighted {
    Variable loss;
    double factor;
};

template <class T>
weighted<variable<T, 0>> operator*(const variable<T, 0>& loss, double factor) {
    return {loss, factor};
}
template <class T>
weighted<variable<T, 0>> operator*(double factor, const variable<T, 0>& loss) {
    return {loss, factor};
}
template <class T>
weighted<variable<T, 0>> operator/(const variable<T, 0>& loss, double divisor) {
    return {loss, 1 / divisor};
}

template <class Variable>
weighted<Variable> operator*(const weighted<Variable>& loss, double factor) {
    return {loss.loss, loss.factor * factor};
}
template <class Variable>
weighted<Variable> operator*(double factor, const weighted<Variable>& loss) {
    return {loss.loss, loss.factor * factor};
}
template <class Variable>
weighted<Variable> operator/(const weighted<Variable>& loss, double divisor) {
    return {loss.loss, loss.factor / divisor};
}

/// The gradient with which a backward pass begins: a factor, times the loss scale and a share of the batch
/// (autodiff/engine/share.hpp) if there are any. These are in the device's memory when the pass runs, so that the host
/// need not know them.
struct gradient_seed {
    double factor = 1;
    const float* scale = nullptr;
    const double* share = nullptr;

    /// The seed's value, factor times share times scale, computed in T, for code that can read the memory of both.
    template <class T = float>
    HALFTONE_HD T value() const {
        const T unscaled = static_cast<T>(share == nullptr ? factor : factor * *share);
        return scale == nullptr ? unscaled : unscaled * static_cast<T>(*scale);
    }
};

/// The variable of a loss, from which a backward pass starts.
template <class T>
const variable<T, 0>& loss_variable(const variable<T, 0>& loss) {
    return loss;
}
// Not a loss: fails with a message.
template <class T, int Rank>
    requires(Rank != 0)
variable<T, 0> loss_variable(const variable<T, Rank>&) {
    static_assert(Rank == 0,
                  "halftone: a loss is one number, and this variable has axes: differentiate its sum or its mean, "
                  "ht::sum(tape, y) or ht::mean(tape, y), or a loss of it");
    return {};
}
/// The gradient with which a backward pass of this loss begins: 1.
template <class T, int Rank>
gradient_seed loss_seed(const variable<T, Rank>&) {
    return {};
}
/// A value computed from such a loss: unchanged; ht::scaled if the loss is scaled.
template <class T, int Rank, class Value>
Value scaled_as(const variable<T, Rank>&, Value value) {
    return value;
}
/// The variable of a weighted loss.
template <class Variable>
const Variable& loss_variable(const weighted<Variable>& loss) {
    return loss.loss;
}
/// The gradient with which its backward pass begins: the factor.
template <class Variable>
gradient_seed loss_seed(const weighted<Variable>& loss) {
    return {loss.factor};
}
/// `value` unchanged: a factor is not a loss scale.
template <class Variable, class Value>
Value scaled_as(const weighted<Variable>&, Value value) {
    return value;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
