// SPDX-License-Identifier: MIT
/// \file
/// The operations of a language model with their gradients, as plain loops over any number type: double for the values,
/// `tracked` for the bounds as well. `Store` says how results are rounded that a kernel stores in a narrow type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/tracked.hpp"

namespace support {

template <class Number>
struct matrix {
    int rows = 0, columns = 0;
    std::vector<Number> values;

    matrix() = default;
    matrix(int r, int c) : rows(r), columns(c), values(static_cast<std::size_t>(r) * static_cast<std::size_t>(c)) {}
    /// Converts numbers to another type, exactly.
    template <class T>
    matrix(int r, int c, const T* data) : matrix(r, c) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = Number(static_cast<double>(data[i]));
    }
    Number& operator()(int i, int j) {
        return values[static_cast<std::size_t>(i) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(j)];
    }
    const Number& operator()(int i, int j) const {
        return values[static_cast<std::size_t>(i) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(j)];
    }
};

template <class Number, class F>
matrix<Number> each(matrix<Number> x, const F& f) {
    for (Number& v : x.values) v = f(v);
    return x;
}
template <class Number>
matrix<Number> plus(matrix<Number> a, const matrix<Number>& b) {
    for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] = a.values[i] + b.values[i];
    return a;
}
template <class Number>
matrix<Number> transposed(const matrix<Number>& a) {
    matrix<Number> t(a.columns, a.rows);
    for (int i = 0; i < a.rows; ++i) {
        for (int j = 0; j < a.columns; ++j) t(j, i) = a(i, j);
    }
    return t;
}
template <class Number>
matrix<Number> product(const matrix<Number>& a, const matrix<Number>& b) {
    matrix<Number> c(a.rows, b.columns);
    for (int i = 0; i < a.rows; ++i) {
        for (int j = 0; j < b.columns; ++j) {
            sum_of<Number> sum;
            for (int k = 0; k < a.columns; ++k) sum.add(a(i, k) * b(k, j));
            c(i, j) = sum.total();
        }
    }
    return c;
}
template <class Number>
matrix<Number> column_sums(const matrix<Number>& x) {
    matrix<Number> sums(1, x.columns);
    for (int j = 0; j < x.columns; ++j) {
        sum_of<Number> sum;
        for (int i = 0; i < x.rows; ++i) sum.add(x(i, j));
        sums(0, j) = sum.total();
    }
    return sums;
}
template <class Number>
matrix<Number> plus_row(matrix<Number> x, const matrix<Number>& row) {
    for (int i = 0; i < x.rows; ++i) {
        for (int j = 0; j < x.columns; ++j) x(i, j) = x(i, j) + row(0, j);
    }
    return x;
}

/// y = (x - mean) rstd gain + bias, for each row.
template <class Number>
struct layer_norm_of {
    matrix<Number> normalised, y;
    std::vector<Number> rstd;

    layer_norm_of(const matrix<Number>& x, const matrix<Number>& gain, const matrix<Number>& bias,
                  double epsilon = 1e-5)
        : normalised(x.rows, x.columns), y(x.rows, x.columns), rstd(static_cast<std::size_t>(x.rows)) {
        const Number width = static_cast<double>(x.columns);
        for (int i = 0; i < x.rows; ++i) {
            sum_of<Number> sum, squares;
            for (int j = 0; j < x.columns; ++j) sum.add(x(i, j));
            const Number mean = sum.total() / width;
            for (int j = 0; j < x.columns; ++j) squares.add((x(i, j) - mean) * (x(i, j) - mean));
            const Number scale = rsqrt(squares.total() / width + static_cast<double>(static_cast<float>(epsilon)));
            rstd[static_cast<std::size_t>(i)] = scale;
            for (int j = 0; j < x.columns; ++j) {
                normalised(i, j) = (x(i, j) - mean) * scale;
                y(i, j) = normalised(i, j) * gain(0, j) + bias(0, j);
            }
        }
    }
    /// Computes dx, dgain, dbias.
    void backward(const matrix<Number>& dy, const matrix<Number>& gain, matrix<Number>& dx, matrix<Number>& dgain,
                  matrix<Number>& dbias) const {
        dx = matrix<Number>(dy.rows, dy.columns);
        matrix<Number> scaled(dy.rows, dy.columns);
        const Number width = static_cast<double>(dy.columns);
        for (int i = 0; i < dy.rows; ++i) {
            sum_of<Number> h, hn;
            for (int j = 0; j < dy.columns; ++j) {
                const Number each = dy(i, j) * gain(0, j);
                h.add(each);
                hn.add(each * normalised(i, j));
                scaled(i, j) = dy(i, j) * normalised(i, j);
            }
            const Number mean_h = h.total() / width, mean_hn = hn.total() / width;
            for (int j = 0; j < dy.columns; ++j) {
                dx(i, j) =
                    rstd[static_cast<std::size_t>(i)] * (dy(i, j) * gain(0, j) - mean_h - normalised(i, j) * mean_hn);
            }
        }
        dgain = column_sums(scaled);
        dbias = column_sums(dy);
    }
};

/// y = x rstd gain, for each row.
template <class Number>
struct rms_norm_of {
    matrix<Number> normalised, y;
    std::vector<Number> rstd;

    rms_norm_of(const matrix<Number>& x, const matrix<Number>& gain, double epsilon = 1e-6)
        : normalised(x.rows, x.columns), y(x.rows, x.columns), rstd(static_cast<std::size_t>(x.rows)) {
        const Number width = static_cast<double>(x.columns);
        for (int i = 0; i < x.rows; ++i) {
            sum_of<Number> squares;
            for (int j = 0; j < x.columns; ++j) squares.add(x(i, j) * x(i, j));
            const Number scale = rsqrt(squares.total() / width + static_cast<double>(static_cast<float>(epsilon)));
            rstd[static_cast<std::size_t>(i)] = scale;
            for (int j = 0; j < x.columns; ++j) {
                normalised(i, j) = x(i, j) * scale;
                y(i, j) = normalised(i, j) * gain(0, j);
            }
        }
    }
    void backward(const matrix<Number>& dy, const matrix<Number>& gain, matrix<Number>& dx,
                  matrix<Number>& dgain) const {
        dx = matrix<Number>(dy.rows, dy.columns);
        matrix<Number> scaled(dy.rows, dy.columns);
        const Number width = static_cast<double>(dy.columns);
        for (int i = 0; i < dy.rows; ++i) {
            sum_of<Number> hn;
            for (int j = 0; j < dy.columns; ++j) {
                hn.add(dy(i, j) * gain(0, j) * normalised(i, j));
                scaled(i, j) = dy(i, j) * normalised(i, j);
            }
            const Number mean_hn = hn.total() / width;
            for (int j = 0; j < dy.columns; ++j) {
                dx(i, j) = rstd[static_cast<std::size_t>(i)] * (dy(i, j) * gain(0, j) - normalised(i, j) * mean_hn);
            }
        }
        dgain = column_sums(scaled);
    }
};

/// Attention of one batch entry: rows are times, (time, heads x head_size); as many keys as queries.
template <class Number>
struct attention_of {
    int heads, head_size;
    bool causal;
    matrix<Number> q, k, v, o;
    std::vector<matrix<Number>> weights;  // one for each head

    template <class Store>
    attention_of(const matrix<Number>& queries, const matrix<Number>& keys, const matrix<Number>& values, int head_count, bool is_causal, const Store& store)
        : heads(head_count), head_size(queries.columns / head_count), causal(is_causal), q(queries), k(keys), v(values), o(q.rows, q.columns) {
        for (int h = 0; h < heads; ++h) {
            matrix<Number> p(q.rows, k.rows);
            for (int i = 0; i < q.rows; ++i) {
                Number largest = score(h, i, 0);
                for (int j = 1; j < seen(i); ++j) largest = larger(largest, score(h, i, j));
                sum_of<Number> sum;
                for (int j = 0; j < seen(i); ++j) sum.add(exp(score(h, i, j) - largest));
                const Number logsumexp = largest + log(sum.total());
                for (int j = 0; j < seen(i); ++j) p(i, j) = exp(score(h, i, j) - logsumexp);
                for (int d = 0; d < head_size; ++d) {
                    // A kernel multiplies unnormalised weights, which it stores, and divides the sum.
                    sum_of<Number> mix;
                    for (int j = 0; j < seen(i); ++j)
                        mix.add(store(exp(score(h, i, j) - largest)) * v(j, h * head_size + d));
                    o(i, h * head_size + d) = mix.total() / sum.total();
                }
            }
            weights.push_back(p);
        }
    }
    template <class Store>
    void backward(const matrix<Number>& d_o, const matrix<Number>& stored_o, matrix<Number>& dq, matrix<Number>& dk,
                  matrix<Number>& dv, const Store& store) const {
        dq = dk = dv = matrix<Number>(q.rows, q.columns);
        const Number factor = scale();
        for (int h = 0; h < heads; ++h) {
            const auto at = [&](int d) { return h * head_size + d; };
            matrix<Number> ds(q.rows, k.rows);
            for (int i = 0; i < q.rows; ++i) {
                sum_of<Number> mean;
                for (int d = 0; d < head_size; ++d) mean.add(d_o(i, at(d)) * stored_o(i, at(d)));
                for (int j = 0; j < seen(i); ++j) {
                    sum_of<Number> dp;
                    for (int d = 0; d < head_size; ++d) dp.add(d_o(i, at(d)) * v(j, at(d)));
                    ds(i, j) = store(weights[static_cast<std::size_t>(h)](i, j) * (dp.total() - mean.total()));
                }
            }
            for (int d = 0; d < head_size; ++d) {
                for (int i = 0; i < q.rows; ++i) {
                    sum_of<Number> sum;
                    for (int j = 0; j < seen(i); ++j) sum.add(ds(i, j) * k(j, at(d)));
                    dq(i, at(d)) = factor * sum.total();
                }
                for (int j = 0; j < k.rows; ++j) {
                    sum_of<Number> of_k, of_v;
                    for (int i = 0; i < q.rows; ++i) {
                        if (j >= seen(i)) continue;
                        of_k.add(ds(i, j) * q(i, at(d)));
                        of_v.add(store(weights[static_cast<std::size_t>(h)](i, j)) * d_o(i, at(d)));
                    }
                    dk(j, at(d)) = factor * of_k.total();
                    dv(j, at(d)) = of_v.total();
                }
            }
        }
    }

  private:
    int seen(int i) const { return causal ? i + 1 : k.rows; }
    // The scale, and its product with that of another base of the exponential, are floats.
    Number scale() const { return further_roundings(Number(1 / std::sqrt(static_cast<double>(head_size))), 2); }
    Number score(int h, int i, int j) const {
        sum_of<Number> sum;
        for (int d = 0; d < head_size; ++d) sum.add(q(i, h * head_size + d) * k(j, h * head_size + d));
        return further_roundings(scale() * sum.total(), 2);
    }
};

/// The mean of -log softmax(x)[target] over rows; rows with the target -100 do not count. `seed` is the loss's
/// gradient.
template <class Number>
struct cross_entropy_of {
    Number loss = 0;
    matrix<Number> dlogits;

    cross_entropy_of(const matrix<Number>& x, const std::vector<std::int32_t>& targets, double seed = 1)
        : dlogits(x.rows, x.columns) {
        sum_of<Number> losses;
        double count = 0;
        for (const std::int32_t t : targets) count += t == -100 ? 0 : 1;
        for (int i = 0; i < x.rows; ++i) {
            const std::int32_t target = targets[static_cast<std::size_t>(i)];
            if (target == -100) continue;
            Number largest = x(i, 0);
            for (int j = 1; j < x.columns; ++j) largest = larger(largest, x(i, j));
            sum_of<Number> sum;
            for (int j = 0; j < x.columns; ++j) sum.add(exp(x(i, j) - largest));
            losses.add(log(sum.total()) + (largest - x(i, target)));
            const Number factor = Number(seed) / Number(count) / sum.total();
            for (int j = 0; j < x.columns; ++j) {
                const Number power = exp(x(i, j) - largest);
                dlogits(i, j) = further_roundings((j == target ? power - sum.total() : power) * factor, 1);
            }
        }
        loss = losses.total() / Number(count);
    }
};

}  // namespace support
