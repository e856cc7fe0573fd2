// SPDX-License-Identifier: MIT
// What halftone::compiled has that is no template: the bodies that other sources skip (HALFTONE_BODIES, config.hpp), and
// the shorter functions of the headers named here, each of which says `#pragma interface`.
#if !defined(__clang__)
#pragma implementation "amax_history.hpp"
#pragma implementation "arena.hpp"
#pragma implementation "attention.hpp"
#pragma implementation "axes.hpp"
#pragma implementation "backward.hpp"
#pragma implementation "cache_sizes.hpp"
#pragma implementation "caching_blocks.hpp"
#pragma implementation "capture_dependency.hpp"
#pragma implementation "cpu.hpp"
#pragma implementation "error.hpp"
#pragma implementation "executor.hpp"
#pragma implementation "float_control.hpp"
#pragma implementation "forward.hpp"
#pragma implementation "generation.hpp"
#pragma implementation "gradient_slabs.hpp"
#pragma implementation "gradients.hpp"
#pragma implementation "graph.hpp"
#pragma implementation "groups.hpp"
#pragma implementation "growable_blocks.hpp"
#pragma implementation "hidden.hpp"
#pragma implementation "history.hpp"
#pragma implementation "initial.hpp"
#pragma implementation "isa.hpp"
#pragma implementation "job.hpp"
#pragma implementation "key_value_cache.hpp"
#pragma implementation "largest_layers.hpp"
#pragma implementation "map.hpp"
#pragma implementation "math.hpp"
#pragma implementation "matmul.hpp"
#pragma implementation "matmul_engine.hpp"
#pragma implementation "memory_budget.hpp"
#pragma implementation "packed.hpp"
#pragma implementation "pickle.hpp"
#pragma implementation "plan.hpp"
#pragma implementation "planned.hpp"
#pragma implementation "planned_blocks.hpp"
#pragma implementation "preemption.hpp"
#pragma implementation "prefetch.hpp"
#pragma implementation "private_b.hpp"
#pragma implementation "private_panels.hpp"
#pragma implementation "processors.hpp"
#pragma implementation "progress.hpp"
#pragma implementation "random_draws.hpp"
#pragma implementation "read_latch.hpp"
#pragma implementation "region_gate.hpp"
#pragma implementation "resource.hpp"
#pragma implementation "segment_blocks.hpp"
#pragma implementation "shared_b.hpp"
#pragma implementation "shares.hpp"
#pragma implementation "slab_plan.hpp"
#pragma implementation "snapshot.hpp"
#pragma implementation "snapshot_file.hpp"
#pragma implementation "snapshot_html.hpp"
#pragma implementation "snapshot_json.hpp"
#pragma implementation "snapshot_page.hpp"
#pragma implementation "snapshot_pickle.hpp"
#pragma implementation "split.hpp"
#pragma implementation "step_counts.hpp"
#pragma implementation "store.hpp"
#pragma implementation "store_entry.hpp"
#pragma implementation "store_run.hpp"
#pragma implementation "strided.hpp"
#pragma implementation "thread_pool.hpp"
#pragma implementation "tiles.hpp"
#pragma implementation "time_slice.hpp"
#pragma implementation "token_sampler.hpp"
#pragma implementation "training_arguments.hpp"
#pragma implementation "tuning.hpp"
#pragma implementation "unpacked_b.hpp"
#pragma implementation "untyped.hpp"
#pragma implementation "usage.hpp"
#pragma implementation "vector_product.hpp"
#pragma implementation "workspace.hpp"
#else
// clang++ has no such pragma: it is told to keep every function of halftone's headers, and of no others.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <semaphore>
#include <set>
#include <sstream>
#include <stop_token>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>
#pragma clang attribute push(__attribute__((used)), apply_to = function)
#endif

#define HALFTONE_COMPILED_FUNCTIONS
#include <halftone/halftone.hpp>
#if defined(__clang__)
#pragma clang attribute pop
#endif
