// SPDX-License-Identifier: MIT
// The yardstick of cost.sh: what halftone's compile time is divided by, so that slow and busy machines are divided out. It does not
// include halftone, and is work of the same kind: half of the time the compiler reads headers and instantiates templates, the other half
// it optimises loops over arrays of several types and sizes. The figures in cost.txt belong to this file as it is: whoever changes it
// measures them again.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace yardstick {

/// A tile of a product: Rows times Columns sums in registers.
template <class T, int Rows, int Columns>
[[gnu::noinline]] void multiply(const T* a, const T* b, T* c, std::ptrdiff_t k, std::ptrdiff_t stride) {
    T sums[Rows][Columns]{};
    for (std::ptrdiff_t i = 0; i < k; ++i) {
        for (int r = 0; r < Rows; ++r) {
            for (int j = 0; j < Columns; ++j) sums[r][j] += a[r * stride + i] * b[i * Columns + j];
        }
    }
    for (int r = 0; r < Rows; ++r) {
        for (int j = 0; j < Columns; ++j) c[r * stride + j] = sums[r][j];
    }
}

/// A loop over an array, with a function of its elements.
template <class T, class F>
[[gnu::noinline]] T fold(std::span<const T> x, const F& f) {
    std::array<T, 8> sums{};
    std::size_t i = 0;
    for (; i + 8 <= x.size(); i += 8) {
        for (std::size_t j = 0; j < 8; ++j) sums[j] += f(x[i + j]);
    }
    for (; i < x.size(); ++i) sums[0] += f(x[i]);
    T sum{};
    for (const T s : sums) sum += s;
    return sum;
}

template <class T, int... N>
void all_tiles(const T* a, const T* b, T* c, std::ptrdiff_t k, std::integer_sequence<int, N...>) {
    (multiply<T, 1 + N % 4, 4 << N / 4>(a, b, c, k, 64), ...);
}

template <int N>
struct layer {
    std::array<float, 4 + N> weights{};
    std::optional<std::string> name;
    template <class X>
    auto operator()(const X& x) const {
        return std::apply([&](const auto&... e) { return std::make_tuple((e * weights[N])..., weights[N]); }, x);
    }
};
template <int... N>
double run(std::variant<layer<N>...> any, std::integer_sequence<int, N...>) {
    const auto deep = [](const auto& l) { return std::get<0>(l(l(l(std::make_tuple(1.0f, 2.0))))); };
    return std::visit([&](const auto& l) -> double { return l.name ? deep(l) : static_cast<double>(l.weights.size()); }, any);
}

template <class T>
double of_type(std::vector<T>& values) {
    std::map<std::string, std::function<T(T)>> functions;
    functions["square"] = [](T x) { return x * x; };
    functions["half"] = [](T x) { return x / 2; };
    std::mt19937 engine(1);
    std::shuffle(values.begin(), values.end(), engine);
    std::sort(values.begin(), values.end(), [](T a, T b) { return b < a; });
    std::stable_sort(values.begin(), values.end(), [&](T a, T b) { return functions["half"](a) < functions["square"](b); });
    std::vector<T> other(values.size());
    all_tiles(values.data(), values.data(), other.data(), 16, std::make_integer_sequence<int, 12>{});
    const std::span<const T> all(other);
    std::ostringstream text;
    text << fold(all, [](T x) { return x; }) << fold(all, [](T x) { return x * x + 1; }) << fold(all, [](T x) { return x < 0 ? -x : x; });
    return static_cast<double>(text.str().size() + functions.size());
}

}  // namespace yardstick

int main(int argc, char**) {
    std::vector<float> floats(static_cast<std::size_t>(argc) * 64);
    std::vector<double> doubles(floats.begin(), floats.end());
    std::vector<std::int32_t> ints(floats.size(), argc);
    double sum = yardstick::of_type(floats) + yardstick::of_type(doubles) + yardstick::of_type(ints);
    std::variant<yardstick::layer<0>, yardstick::layer<1>, yardstick::layer<2>, yardstick::layer<3>, yardstick::layer<4>> any;
    sum += yardstick::run(any, std::make_integer_sequence<int, 5>{});
    return sum < 0 ? 1 : 0;
}
