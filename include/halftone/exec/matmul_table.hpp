// SPDX-License-Identifier: MIT
/// \file
/// Measurements of which products an engine computes faster than halftone's kernels, on one model of GPU.
///
///     const ht::matmul_table table = ht::matmul_table::read("h200.txt");      // bench_cuda --matmul-table h200.txt
///     ht::cuda device{{.engine = ht::cublaslt{.table = table}}};
///
/// A product is computed as was faster for the nearest measured product of the same types and end, by the distance of
/// the logarithms of m, n and k. So the choice is a function of shape, types and the table, and the table's name
/// identifies the bits of results.
///
/// The file is text: a line "halftone-matmul-table NAME ARCHITECTURE", then a line a measured product, "bfloat16
/// result rows columns 8192 768 3072 1.31": its operands, its end, the orders of a and b, m, n and k, and halftone's
/// time over the engine's.
#pragma once

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <halftone/error.hpp>
#include <halftone/exec/matmul_engine.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A product that was timed with the engine and with halftone's kernels.
struct measured_product {
    element_type operands;
    product_end end;
    matrix_order a_order, b_order;
    extent m, n, k;
    double ratio;  ///< halftone's time over the engine's: above 1 the engine is the faster one
};

/// The timed products of one GPU model, and predictions for others.
class matmul_table {
  public:
    /// An empty table: nothing was measured.
    matmul_table() = default;
    /// `architecture` is 10 times the compute capability. Throws argument_error for a name that is no single word and for
    /// ratios and extents that are not positive.
    matmul_table(std::string name, int architecture, std::vector<measured_product> products)
        : name_(std::move(name)), architecture_(architecture), products_(std::move(products)) {
        if (name_.empty() || name_.find_first_of(" \t\r\n") != std::string::npos) {
            fail<argument_error>("matmul table: its name is \"", name_, "\"; expected one word");
        }
        for (const measured_product& p : products_) {
            if (!(p.ratio > 0) || p.m < 1 || p.n < 1 || p.k < 1) {
                fail<argument_error>("matmul table ", name_, ": a product of ", p.m, " x ", p.n, " x ", p.k,
                                     " with ratio ", p.ratio, "; expected positive numbers");
            }
        }
    }

    /// The table's name, one word: it is written into summaries and checkpoints.
    const std::string& name() const { return name_; }
    /// Ten times the compute capability of the GPU that was measured.
    int architecture() const { return architecture_; }
    /// The products that were measured.
    const std::vector<measured_product>& products() const { return products_; }

    /// Whether the engine is faster; nothing if no product of these types and this end was measured.
    std::optional<bool> prefers_engine(const product_description& p) const {
        const measured_product* nearest = nullptr;
        double least = 0;
        for (const measured_product& known : products_) {
            if (known.operands != p.operands || known.end != p.end) continue;
            const double distance = distance_between(known, p);
            if (nearest == nullptr || distance < least) nearest = &known, least = distance;
        }
        if (nearest == nullptr) return std::nullopt;
        return nearest->ratio > 1;
    }

    /// The file's contents.
    std::string text() const {
        std::string all = detail::sentence(heading, " ", name_, " ", architecture_, "\n");
        for (const measured_product& p : products_) {
            all +=
                detail::sentence(word_of(types, p.operands), " ", word_of(ends, p.end), " ", word_of(orders, p.a_order),
                                 " ", word_of(orders, p.b_order), " ", p.m, " ", p.n, " ", p.k, " ", p.ratio, "\n");
        }
        return all;
    }
    /// Parses text() back. Throws argument_error, naming the line, for anything else.
    static matmul_table parse(const std::string& text) {
        std::istringstream lines(text);
        std::string line, name;
        int architecture = 0, number = 0;
        std::vector<measured_product> products;
        while (std::getline(lines, line)) {
            std::istringstream words(line);
            std::string word, excess;
            bool is_good = false;
            if (++number == 1) {
                is_good = words >> word >> name >> architecture && word == heading;
            } else {
                measured_product p{};
                const auto is_one_of = [&](const auto& all, auto& value) {
                    return words >> word && find(all, word, value);
                };
                is_good = is_one_of(types, p.operands) && is_one_of(ends, p.end) && is_one_of(orders, p.a_order) &&
                          is_one_of(orders, p.b_order) && words >> p.m >> p.n >> p.k >> p.ratio;
                products.push_back(p);
            }
            if (!is_good || words >> excess) {
                fail<argument_error>("matmul table: line ", number, " is \"", line.substr(0, 80), "\"; expected ",
                                     number == 1 ? "\"halftone-matmul-table NAME ARCHITECTURE\""
                                                 : "operands, end, orders of a and b, m, n, k and a ratio");
            }
        }
        if (number == 0) fail<argument_error>("matmul table: it is empty");
        return {std::move(name), architecture, std::move(products)};
    }
    /// Throws argument_error for a file that cannot be read, and as parse does.
    static matmul_table read(const std::string& path) {
        std::ifstream file(path, std::ios::binary);
        std::ostringstream text;
        if (!file || !(text << file.rdbuf())) fail<argument_error>("matmul table: cannot read ", path);
        return parse(text.str());
    }

  private:
    static constexpr const char* heading = "halftone-matmul-table";

    template <class Value>
    struct word {
        const char* name;
        Value value;
    };
    static constexpr word<element_type> types[] = {{"float32", element_type::float32},
                                                   {"tfloat32", element_type::tfloat32},
                                                   {"bfloat16", element_type::bfloat16},
                                                   {"float16", element_type::float16},
                                                   {"float8_e4m3", element_type::float8_e4m3},
                                                   {"float8_e5m2", element_type::float8_e5m2}};
    static constexpr word<product_end> ends[] = {{"result", product_end::result}, {"kernel", product_end::kernel}};
    static constexpr word<matrix_order> orders[] = {{"rows", matrix_order::rows}, {"columns", matrix_order::columns}};

    template <class Value, std::size_t N>
    static const char* word_of(const word<Value> (&all)[N], Value value) {
        for (const word<Value>& w : all) {
            if (w.value == value) return w.name;
        }
        return "unknown";
    }
    template <class Value, std::size_t N>
    static bool find(const word<Value> (&all)[N], const std::string& name, Value& to) {
        for (const word<Value>& w : all) {
            if (w.name != name) continue;
            to = w.value;
            return true;
        }
        return false;
    }

    /// The product of the three ratios of extents, each at least 1: its logarithm is the distance. A difference in an
    /// operand's order counts like a factor of 2.
    static double distance_between(const measured_product& known, const product_description& p) {
        const auto times = [](extent a, extent b) {
            return static_cast<double>(std::max(a, b)) / static_cast<double>(std::min(a, b));
        };
        return times(known.m, p.m) * times(known.n, p.n) * times(known.k, p.k) * (known.a_order == p.a_order ? 1 : 2) *
               (known.b_order == p.b_order ? 1 : 2);
    }

    std::string name_ = "estimate";
    int architecture_ = 0;
    std::vector<measured_product> products_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
