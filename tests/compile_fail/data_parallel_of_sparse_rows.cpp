// SPDX-License-Identifier: MIT
// expect: a table with a sparse gradient (ht::nn::sparse_embedding), whose rows are not the same ones on all ranks
#include <halftone/kernel.hpp>
#include <halftone/nn/embedding.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/nn/sparse_embedding.hpp>
#include <halftone/ranks/data_parallel.hpp>

namespace ht = halftone;

template <class P>
struct model_type : ht::nn::model {
#if defined(HALFTONE_TEST_RIGHT)
    ht::nn::token_embedding<ht::at<P, "embed">> embed;
#else
    ht::nn::sparse_embedding<ht::at<P, "embed">> embed;
#endif
    explicit model_type(ht::cpu& device) : ht::nn::model(device), embed(parameters(), 16, 8) { commit(*this); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.embed); }
};

void train(ht::cpu& device, ht::communicator& comm, model_type<ht::full_fp32>& model) {
    ht::accumulator acc{model};
    ht::data_parallel ranks{device, comm, acc};
    (void)ranks.size();
}
