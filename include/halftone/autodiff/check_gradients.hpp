// SPDX-License-Identifier: MIT
/// \file
/// The gradient of a function against differences of the function, in double: for who writes operations of their own
/// (the counterpart of torch.autograd.gradcheck).
///
///     const auto report = ht::check_gradients(device, [](auto& ctx, auto x, auto y) { return ht::apply<mine>(ctx, x, y); }, x, y);
///     if (!report.agrees()) std::cout << report.text();
///     // check_gradients: input 1, element 3: backward gives 2.5, differences 5; 1 of 12 elements disagree
///
/// Inputs are views of doubles in host memory; the function is called with a tape and a variable for each of them, and
/// returns a variable of doubles of any shape. Its elements are weighted by fixed random numbers and summed: of that sum
/// backward gives the gradient, and (s(x + h) - s(x - h)) / 2h the differences, h being eps max(1, |x|). Each element of
/// the inputs costs two calls of the function, so that small inputs do.
///
/// Both halves are fp64 throughout where the function's operations are: a function that rounds to float within is off by
/// 1e-7 / eps, and is found out. Random numbers (ht::dropout) are the same in all calls. What is not smooth disagrees
/// within h of its corners.
#pragma once

#include <cmath>
#include <string>
#include <tuple>

#include <halftone/autodiff/reduce.hpp>
#include <halftone/number/normal.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/tensor/host_tensor.hpp>

namespace halftone::inline HALFTONE_ABI {

/// An element disagrees where |backward's - differences'| > atol + rtol |differences'|, or either is NaN.
struct gradient_check_options {
    double eps = 1e-5;
    double atol = 1e-7;
    double rtol = 1e-5;
};

struct gradient_report {
    extent checked = 0;   ///< elements of all inputs
    extent disagree = 0;  ///< of these
    // The one that exceeds its tolerance most, or comes closest to it.
    int input = 0;       ///< from 0
    extent element = 0;  ///< of that input, in the order of its memory
    double backward = 0, differences = 0;

    bool agrees() const { return disagree == 0; }
    /// For people, without a line end.
    std::string text() const {
        return detail::sentence("check_gradients: input ", input, ", element ", element, ": backward gives ", backward,
                                ", differences ", differences, "; ", disagree, " of ", checked,
                                checked == 1 ? " element disagrees" : " elements disagree");
    }
};

namespace detail {

template <class F, class Device, class Indices>
class gradient_checker;

/// Inputs as tensors of the device's, which are changed an element at a time.
template <class F, class Device, std::size_t... I>
class gradient_checker<F, Device, std::index_sequence<I...>> {
  public:
    gradient_checker(Device& device, const F& f, const gradient_check_options& options)
        : device_(device), f_(f), options_(options) {}

    template <class... Views>
    gradient_report run(const Views&... views) {
        std::tuple inputs{to_device(device_, views)...};
        std::tuple slopes{host_tensor<double, Views::rank>(views.shape())...};
        const double value = differentiate(inputs, slopes);
        if (const double again = evaluate(inputs); !(again == value) && !(again != again && value != value)) {
            fail<state_error>("check_gradients: the function gives another value (", again, ", before ", value,
                              ") for the same inputs");
        }
        (compare<I>(inputs, std::get<I>(slopes), views), ...);
        return report_;
    }

  private:
    /// The function's elements, weighted and summed.
    template <class Tape, class... Leaves>
    auto weighted_sum(Tape& tape, const Leaves&... leaves) {
        tape.seed(0);
        const auto y = f_(tape, leaves...);
        using Y = std::remove_cvref_t<decltype(y)>;
        static_assert(std::is_same_v<typename Y::value_type, double>,
                      "halftone: check_gradients: the function's result is no variable of doubles: some operation on "
                      "the way rounds (an explicit type, ht::cast<float>, an operation of your own that makes floats), "
                      "and differences of what is rounded are no gradient");
        host_tensor<double, Y::rank> weights(y.shape());
        for (extent i = 0; i < weights.size(); ++i) {
            const auto n = static_cast<std::uint64_t>(2 * i);
            weights.data()[i] =
                0.5 + static_cast<double>(normal(random_bits(1, 0, 0, n), random_bits(1, 0, 0, n + 1)).first);
        }
        weights_.push_back(to_device(device_, flatten(weights.view())));
        return reduce<op::sum, double>(tape, 1.0, multiply_function{}, y,
                                       tape.constant(const_view<double, Y::rank>(
                                           as_view(weights_.back()).data(), y.shape())));
    }

    template <class Inputs, class Slopes>
    double differentiate(Inputs& inputs, Slopes& slopes) {
        weights_.clear();
        tape<Device> tape{device_};
        const std::tuple leaves{tape.leaf(as_const(as_view(std::get<I>(inputs))))...};
        const auto sum = weighted_sum(tape, std::get<I>(leaves)...);
        const double value = sum.item();
        if (sum.wants_gradient()) tape.backward(sum);
        (take(tape, std::get<I>(leaves), std::get<I>(slopes)), ...);
        return value;
    }
    /// Zeros, where no gradient came.
    template <class Tape, int Rank>
    void take(Tape& tape, const variable<double, Rank>& leaf, host_tensor<double, Rank>& slopes) {
        if (tape.graph().has_gradient(leaf.slot())) slopes = to_host(device_, tape.gradient(leaf));
    }

    template <class Inputs>
    double evaluate(Inputs& inputs) {
        weights_.clear();
        tape<Device> tape{device_};
        return weighted_sum(tape, tape.leaf(as_const(as_view(std::get<I>(inputs))))...).item();
    }

    template <std::size_t Index, class Inputs, class Slopes, class View>
    void compare(Inputs& inputs, const Slopes& slopes, const View& given) {
        const auto values = flatten(given);
        const auto there = flatten(as_view(std::get<Index>(inputs)));
        for (extent i = 0; i < values.size(); ++i) {
            const double x = values(i), step = options_.eps * std::fmax(1.0, std::fabs(x));
            const double above = x + step, below = x - step;
            const auto at = [&](double value) {
                device_.memory().write(there.data() + i, &value, sizeof value);
                return evaluate(inputs);
            };
            const double difference = (at(above) - at(below)) / (above - below);
            device_.memory().write(there.data() + i, &x, sizeof x);
            note(static_cast<int>(Index), i, slopes.data()[i], difference);
        }
    }
    void note(int input, extent element, double slope, double difference) {
        const double tolerance = options_.atol + options_.rtol * std::fabs(difference);
        const double excess = std::fabs(slope - difference) / tolerance;
        const bool agrees = std::fabs(slope - difference) <= tolerance;
        // NaN exceeds everything.
        if (report_.checked == 0 || !(excess <= worst_)) {
            worst_ = excess == excess ? excess : HUGE_VAL;
            report_.input = input, report_.element = element;
            report_.backward = slope, report_.differences = difference;
        }
        ++report_.checked;
        report_.disagree += agrees ? 0 : 1;
    }

    Device& device_;
    const F& f_;
    gradient_check_options options_;
    gradient_report report_;
    double worst_ = 0;
    std::vector<tensor<double, 1>> weights_;  // while a tape reads them
};

}  // namespace detail

/// Compares the gradients that f's backward pass gives with differences: the file's head has the rules. Throws what f
/// throws, argument_error for options that are none, state_error where f gives two values for the same inputs.
template <class Device, class F, class... T, int... Rank>
[[nodiscard]] gradient_report check_gradients(Device& device, const gradient_check_options& options, const F& f,
                                              const view<T, Rank>&... inputs) {
    static_assert(sizeof...(T) > 0 && (std::is_same_v<std::remove_const_t<T>, double> && ...),
                  "halftone: check_gradients: inputs are views of doubles, one or more: differences of floats have three "
                  "digits at best; run the operation in fp64 here, and in its own type where it is used");
    if (!(options.eps > 0 && options.atol >= 0 && options.rtol >= 0))
        fail<argument_error>("check_gradients: eps is ", options.eps, ", atol ", options.atol, ", rtol ", options.rtol,
                             "; expected eps > 0, and the tolerances 0 or more");
    return detail::gradient_checker<F, Device, std::index_sequence_for<T...>>(device, f, options)
        .run(const_view<double, Rank>(inputs)...);
}
template <class Device, class F, class... T, int... Rank>
[[nodiscard]] gradient_report check_gradients(Device& device, const F& f, const view<T, Rank>&... inputs) {
    return check_gradients(device, gradient_check_options{}, f, inputs...);
}

}  // namespace halftone::inline HALFTONE_ABI
