// SPDX-License-Identifier: MIT
/// \file
/// A GPT in plain loops, forward and backward, over any number type: double for exact values, `tracked` for error
/// bounds, and double with stored results rounded to 16 bits for the result of a naive mixed-precision step.
///
///     const nn_test::oracle<support::tracked> exact(config, nn_test::parameters_of<support::tracked>(model), support::stored_exactly{});
///     const auto result = exact(tokens, targets);
///     result.gradients.at("h.0.attn.qkv.weight")
#pragma once

#include <map>
#include <string>
#include <vector>

#include <halftone/kernel/attention/reference.hpp>
#include <halftone/kernel/cross_entropy/reference.hpp>
#include <halftone/kernel/embedding/reference.hpp>
#include <halftone/kernel/matmul/reference.hpp>
#include <halftone/kernel/norm/reference.hpp>
#include <halftone/nn/gpt.hpp>

#include "support/gradient_sink.hpp"
#include "support/layers.hpp"
#include "support/random.hpp"

namespace nn_test {

namespace ht = halftone;
using support::matrix;
using support::gelu, support::gelu_derivative;

template <class Number>
using named = std::map<std::string, matrix<Number>>;

/// The masters of a model by path; matrices as (rows, columns), vectors as one row.
template <class Number, class Model>
named<Number> parameters_of(Model& model) {
    const ht::nn::gpt_config& c = model.config();
    const auto columns = [&](const std::string& path, std::size_t count) {
        if (path.ends_with("bias") || path.ends_with("gain")) return static_cast<int>(count);
        return static_cast<int>(path.ends_with("down.weight") ? 4 * c.width : c.width);
    };
    named<Number> all;
    ht::store& s = model.parameters();
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        const ht::store::entry& e = s.entries()[i];
        const int width = columns(e.path, e.count);
        all.emplace(e.path,
                    matrix<Number>(static_cast<int>(e.count) / width, width, support::read_masters(s, i).data()));
    }
    return all;
}

struct batch {
    int rows = 0, time = 0;
    std::vector<std::int32_t> token_ids, target_ids;
    ht::const_view<std::int32_t, 2> tokens, targets;

    batch(int r, int t, std::vector<std::int32_t> ids, std::vector<std::int32_t> next)
        : rows(r), time(t), token_ids(std::move(ids)), target_ids(std::move(next)), tokens(token_ids.data(), {r, t}), targets(target_ids.data(), {r, t}) {}
    batch(const batch&) = delete;

    /// Tokens at random; some targets do not count.
    static batch random(int rows, int time, int vocabulary, std::uint64_t seed) {
        support::random data(seed);
        std::vector<std::int32_t> ids = data.indices(rows * time, vocabulary),
                                  next = data.indices(rows * time, vocabulary);
        return {rows, time, ids, next};
    }
    /// The rows [first, first + count).
    batch part(int first, int count) const {
        const auto cut = [&](const std::vector<std::int32_t>& all) {
            return std::vector<std::int32_t>(all.begin() + first * time, all.begin() + (first + count) * time);
        };
        return {count, time, cut(token_ids), cut(target_ids)};
    }
};

template <class Number>
struct result {
    Number loss = 0;
    named<Number> gradients;
};

/// `Store` rounds what kernels store; weights are rounded by it too, as copies are.
template <class Number, class Store = support::stored_exactly>
class oracle {
  public:
    using M = matrix<Number>;

    oracle(const ht::nn::gpt_config& c, const named<Number>& parameters, const Store& store = {})
        : width_(static_cast<int>(c.width)),
          heads_(static_cast<int>(c.heads)),
          layers_(c.layers),
          parameters_(parameters),
          store_(store) {}

    /// The gradients of seed times the mean loss.
    result<Number> operator()(const batch& b, double seed = 1) const {
        result<Number> r;
        const M table = weight("embed.tokens"), positions = weight("embed.positions");
        M x(b.rows * b.time, width_);
        for (int i = 0; i < x.rows; ++i) {
            for (int j = 0; j < width_; ++j)
                x(i, j) = store_(table(b.token_ids[static_cast<std::size_t>(i)], j) + positions(i % b.time, j));
        }
        std::vector<block> blocks;
        for (int l = 0; l < layers_; ++l) {
            blocks.push_back(forward("h." + std::to_string(l) + ".", b, x));
            x = blocks.back().y;
        }
        const support::layer_norm_of<Number> norm(x, parameter("norm.gain"), parameter("norm.bias"));
        const M last = each(norm.y, store_), logits = each(product(last, transposed(table)), store_);
        const support::cross_entropy_of<Number> ce(logits, b.target_ids, seed);
        r.loss = ce.loss;

        const M dlogits = each(ce.dlogits, store_);
        M dx = backward_norm(norm, each(product(dlogits, table), store_), M(x.rows, width_), "norm.", r.gradients);
        for (int l = layers_ - 1; l >= 0; --l)
            dx = backward("h." + std::to_string(l) + ".", b, blocks[static_cast<std::size_t>(l)], dx, r.gradients);

        M dtable(table.rows, width_), dpositions(parameter("embed.positions").rows, width_);
        for (int j = 0; j < width_; ++j) {
            std::vector<support::sum_of<Number>> rows(static_cast<std::size_t>(table.rows)),
                places(static_cast<std::size_t>(b.time));
            for (int i = 0; i < x.rows; ++i) {
                rows[static_cast<std::size_t>(b.token_ids[static_cast<std::size_t>(i)])].add(dx(i, j));
                places[static_cast<std::size_t>(i % b.time)].add(dx(i, j));
            }
            for (int i = 0; i < table.rows; ++i) dtable(i, j) = rows[static_cast<std::size_t>(i)].total();
            for (int i = 0; i < b.time; ++i) dpositions(i, j) = places[static_cast<std::size_t>(i)].total();
        }
        r.gradients["embed.tokens"] = plus(dtable, product(transposed(dlogits), last));
        r.gradients["embed.positions"] = dpositions;
        return r;
    }

  private:
    struct block {
        support::layer_norm_of<Number> norm1, norm2;
        std::vector<support::attention_of<Number>> attention;  // of each row of the batch
        M n1, qkv, o, n2, pre, hidden, y;
    };

    const M& parameter(const std::string& path) const { return parameters_.at(path); }
    M weight(const std::string& path) const { return each(parameter(path), store_); }

    M linear(const M& x, const std::string& path) const {
        return plus_row(product(x, transposed(weight(path + ".weight"))), weight(path + ".bias"));
    }
    /// Stores the parameters' gradients and gives that of the input, not yet stored.
    M backward_linear(const M& x, const M& dy, const std::string& path, named<Number>& gradients) const {
        gradients[path + ".weight"] = product(transposed(dy), x);
        gradients[path + ".bias"] = column_sums(dy);
        return product(dy, weight(path + ".weight"));
    }
    /// The gradient of a norm's input, added to what is there.
    M backward_norm(const support::layer_norm_of<Number>& norm, const M& dy, const M& there, const std::string& path,
                    named<Number>& gradients) const {
        M dx;
        norm.backward(dy, parameter(path + "gain"), dx, gradients[path + "gain"], gradients[path + "bias"]);
        return each(plus(there, dx), store_);
    }

    static M rows_of(const M& all, int first, int count, int column, int columns) {
        M m(count, columns);
        for (int i = 0; i < count; ++i) {
            for (int j = 0; j < columns; ++j) m(i, j) = all(first + i, column + j);
        }
        return m;
    }
    static void put(const M& part, M& all, int first, int column) {
        for (int i = 0; i < part.rows; ++i) {
            for (int j = 0; j < part.columns; ++j) all(first + i, column + j) = part(i, j);
        }
    }

    block forward(const std::string& path, const batch& b, const M& x) const {
        const support::layer_norm_of<Number> norm1(x, parameter(path + "attn.norm.gain"),
                                                   parameter(path + "attn.norm.bias"));
        const M n1 = each(norm1.y, store_), qkv = each(linear(n1, path + "attn.qkv"), store_);
        std::vector<support::attention_of<Number>> attention;
        M o(x.rows, width_);
        for (int r = 0; r < b.rows; ++r) {
            const auto third = [&](int which) { return rows_of(qkv, r * b.time, b.time, which * width_, width_); };
            attention.emplace_back(third(0), third(1), third(2), heads_, true, store_);
            put(each(attention.back().o, store_), o, r * b.time, 0);
        }
        const M mixed = each(plus(linear(o, path + "attn.proj"), x), store_);
        const support::layer_norm_of<Number> norm2(mixed, parameter(path + "mlp.norm.gain"),
                                                   parameter(path + "mlp.norm.bias"));
        const M n2 = each(norm2.y, store_), pre = linear(n2, path + "mlp.up");
        const M hidden = each(each(pre, [](const Number& v) { return gelu(v); }), store_);
        const M y = each(plus(linear(hidden, path + "mlp.down"), mixed), store_);
        return {norm1, norm2, attention, n1, qkv, o, n2, each(pre, store_), hidden, y};
    }
    M backward(const std::string& path, const batch& b, const block& f, const M& dy, named<Number>& gradients) const {
        M dpre = backward_linear(f.hidden, dy, path + "mlp.down", gradients);
        for (std::size_t i = 0; i < dpre.values.size(); ++i)
            dpre.values[i] = store_(dpre.values[i] * gelu_derivative(f.pre.values[i]));
        const M dn2 = each(backward_linear(f.n2, dpre, path + "mlp.up", gradients), store_);
        const M dmixed = backward_norm(f.norm2, dn2, dy, path + "mlp.norm.", gradients);
        const M d_o = each(backward_linear(f.o, dmixed, path + "attn.proj", gradients), store_);
        M dqkv(f.qkv.rows, f.qkv.columns);
        for (int r = 0; r < b.rows; ++r) {
            M dq, dk, dv;
            f.attention[static_cast<std::size_t>(r)].backward(rows_of(d_o, r * b.time, b.time, 0, width_),
                                                              rows_of(f.o, r * b.time, b.time, 0, width_), dq, dk, dv,
                                                              store_);
            put(each(dq, store_), dqkv, r * b.time, 0), put(each(dk, store_), dqkv, r * b.time, width_),
                put(each(dv, store_), dqkv, r * b.time, 2 * width_);
        }
        const M dn1 = each(backward_linear(f.n1, dqkv, path + "attn.qkv", gradients), store_);
        return backward_norm(f.norm1, dn1, dmixed, path + "attn.norm.", gradients);
    }

    int width_, heads_, layers_;
    named<Number> parameters_;
    Store store_;
};

/// The loss once more, out of the kernels' definitions in double: what the oracle's gradients are differentiated from.
class reference_loss {
  public:
    reference_loss(const ht::nn::gpt_config& c, const batch& b) : c_(c), b_(b) {}

    double operator()(const named<double>& p) const {
        const ht::extent rows = b_.rows * b_.time, width = c_.width;
        std::vector<double> x(static_cast<std::size_t>(rows * width));
        const ht::const_view<double, 2> table(p.at("embed.tokens").values.data(), {c_.vocabulary, width});
        ht::reference::embedding(ht::const_view<std::int32_t, 1>(b_.token_ids.data(), {rows}), table,
                                 ht::const_view<double, 2>(p.at("embed.positions").values.data(), {b_.time, width}),
                                 ht::view<double, 2>(x.data(), {rows, width}));
        for (int l = 0; l < c_.layers; ++l) {
            const std::string h = "h." + std::to_string(l) + ".";
            const auto qkv = linear(norm(x, p, h + "attn.norm."), width, 3 * width, p, h + "attn.qkv");
            std::vector<double> o(x.size()), logsumexp(static_cast<std::size_t>(rows * c_.heads));
            const ht::shape<4> heads{b_.rows, b_.time, c_.heads, width / c_.heads},
                strides{b_.time * 3 * width, 3 * width, width / c_.heads, 1};
            const auto third = [&](int which) {
                return ht::const_view<double, 4>(qkv.data() + which * width, heads, strides);
            };
            ht::reference::attention(third(0), third(1), third(2), ht::view<double, 4>(o.data(), heads),
                                     ht::view<double, 3>(logsumexp.data(), {b_.rows, c_.heads, b_.time}),
                                     ht::attention_options{.mask = ht::attention_mask::causal});
            add(x, linear(o, width, width, p, h + "attn.proj"));
            auto hidden = linear(norm(x, p, h + "mlp.norm."), width, 4 * width, p, h + "mlp.up");
            for (double& v : hidden) v = support::gelu(v);
            add(x, linear(hidden, 4 * width, width, p, h + "mlp.down"));
        }
        x = norm(x, p, "norm.");
        std::vector<double> logits(static_cast<std::size_t>(rows * c_.vocabulary)),
            losses(static_cast<std::size_t>(rows));
        for (ht::extent i = 0; i < rows; ++i) {
            for (ht::extent j = 0; j < c_.vocabulary; ++j) {
                for (ht::extent k = 0; k < width; ++k)
                    logits[static_cast<std::size_t>(i * c_.vocabulary + j)] +=
                        x[static_cast<std::size_t>(i * width + k)] * table(j, k);
            }
        }
        return ht::reference::cross_entropy(ht::view<double, 2>(logits.data(), {rows, c_.vocabulary}),
                                            ht::const_view<std::int32_t, 1>(b_.target_ids.data(), {rows}), -100,
                                            ht::view<double, 1>(losses.data(), {rows}));
    }

  private:
    using doubles = std::vector<double>;
    static void add(doubles& x, const doubles& y) {
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    }
    doubles norm(const doubles& x, const named<double>& p, const std::string& path) const {
        const ht::extent rows = b_.rows * b_.time;
        doubles y(x.size()), mean(static_cast<std::size_t>(rows)), rstd(mean.size());
        ht::reference::layer_norm(ht::const_view<double, 2>(x.data(), {rows, c_.width}),
                                  ht::const_view<double, 1>(p.at(path + "gain").values.data(), {c_.width}),
                                  ht::const_view<double, 1>(p.at(path + "bias").values.data(), {c_.width}),
                                  static_cast<double>(1e-5f), ht::view<double, 2>(y.data(), {rows, c_.width}),
                                  ht::view<double, 1>(mean.data(), {rows}), ht::view<double, 1>(rstd.data(), {rows}));
        return y;
    }
    doubles linear(const doubles& x, ht::extent in, ht::extent out, const named<double>& p,
                   const std::string& path) const {
        const ht::extent rows = b_.rows * b_.time;
        const doubles &w = p.at(path + ".weight").values, &bias = p.at(path + ".bias").values;
        doubles y(static_cast<std::size_t>(rows * out));
        for (ht::extent i = 0; i < rows; ++i) {
            for (ht::extent j = 0; j < out; ++j) {
                double& sum = y[static_cast<std::size_t>(i * out + j)];
                sum = bias[static_cast<std::size_t>(j)];
                for (ht::extent k = 0; k < in; ++k)
                    sum += x[static_cast<std::size_t>(i * in + k)] * w[static_cast<std::size_t>(j * in + k)];
            }
        }
        return y;
    }

    ht::nn::gpt_config c_;
    const batch& b_;
};

/// Masters that are no special case: embeddings of deviation 1, gains around 1, biases that are not zero; weights small
/// enough that worst-case bounds do not outgrow the values from layer to layer.
template <class Model>
void randomize(Model& model, std::uint64_t seed) {
    support::random data(seed);
    ht::store& s = model.parameters();
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        const ht::store::entry& e = s.entries()[i];
        const bool is_gain = e.path.ends_with("gain");
        const double deviation = e.path.starts_with("embed") ? 1 : 0.1;
        std::vector<float> values(e.count);
        for (float& v : values) v = static_cast<float>((is_gain ? 1 : 0) + deviation * data.normal());
        support::write_masters(s, i, values);
    }
    s.refresh();
}

}  // namespace nn_test
