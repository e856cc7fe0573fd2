#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What docs/add_an_operation.md promises: a function of an expression is complete with four files, and one that is a node of its own with
# six. Adds one of each to a copy, and runs the tests that read the table of operations.
#
#     tests/headers/new_operations.sh [COMPILER]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cxx=${1:-${CXX:-c++}}
command -v python3 >/dev/null 2>&1 || { echo "skipped: there is no python3"; exit 77; }
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/docs"
cp -r "$root/include" "$root/tests" "$copy"
cp "$root/docs/api.md" "$copy/docs"

# behind FILE LINE TEXT: puts the text, its \n as ends of lines, behind the only line that begins so.
behind() {
    python3 - "$copy/$1" "$2" "$3" <<'PY'
import sys
file, line, text = sys.argv[1:]
lines = open(file, encoding="utf-8").read().split("\n")
at = [i for i, l in enumerate(lines) if l.startswith(line)]
assert len(at) == 1, f"{file} has {len(at)} lines that begin with '{line}'"
lines[at[0]:at[0] + 1] = [lines[at[0]], *text.split("\\n")]
open(file, "w", encoding="utf-8").write("\n".join(lines))
PY
}
# expect_files NUMBER: so many of the copy's files are not the project's.
changed=
expect_files() {
    local now new
    now=$(diff -rq "$root/include" "$copy/include" || true; diff -rq "$root/tests" "$copy/tests" || true
        diff -q "$root/docs/api.md" "$copy/docs/api.md" || true)
    new=$(grep -c . <<<"$now")
    if ((new != $1)); then
        echo "expected $1 changed files, and there are $new:"$'\n'"$now"
        exit 1
    fi
    changed+="$new files, "
}

table=include/halftone/policy/operation_table.hpp functions=include/halftone/autodiff/op/elementwise.hpp golden=tests/golden/operations.txt

# hardswish, of minima and maxima.
behind $table 'HALFTONE_FUNCTION(gelu_erf,' 'HALFTONE_FUNCTION(hardswish,  as_input)'
behind $functions '// A number as the second operand' '\n/// x min(max(x + 3, 0), 6) / 6.
template <class As = by_category, recording_context Context, class X, int Rank>
auto hardswish(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::hardswish, As>(
        context, [](auto a) { return a * halftone::min(halftone::max(a + 3, 0), 6) / 6; }, x);
}'
behind $golden 'gelu_erf |' 'hardswish | F.hardswish(x) | -4.5 4.5 | neg neg | -4.5 -0.0 0.0 0.0, -2.700000047683716 -0.1349999809265133 -0.4000000158945719 0.3333333333333333, -0.8999999761581421 -0.3149999952316283 0.20000000794728595 0.3333333333333333, 0.8999999761581421 0.5849999809265137 0.7999999920527141 0.3333333333333333, 2.700000047683716 2.5650000667572024 1.4000000158945718 0.3333333333333333, 4.5 4.5 1.0 0.0 | -inf nan, -0.0 -0.0, 0.0 0.0, inf inf, nan nan'
behind docs/api.md '| `ht::gelu` |' '| `ht::hardswish` | `halftone/autodiff/op/elementwise.hpp` | x min(max(x + 3, 0), 6) / 6 |'
expect_files 4

# softsign, as a node of its own with code for vectors.
behind $table 'HALFTONE_FUNCTION(gelu_erf,' 'HALFTONE_FUNCTION(softsign,   as_input)'
behind $functions '// A number as the second operand' '\n/// x / (1 + |x|).
template <class As = by_category, recording_context Context, class X, int Rank>
auto softsign(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::softsign, As>(context, [](auto a) { return halftone::softsign(a); }, x);
}'
behind $golden 'gelu_erf |' 'softsign | F.softsign(x) | -4 4 | neg neg | -4.0 -0.8 0.04000000000000001 0.016, -2.4000000953674316 -0.705882361190954 0.08650518545860844 0.050885401783649066, -0.800000011920929 -0.4444444481237435 0.30864197122053194 0.3429355213071966, 0.800000011920929 0.4444444481237435 0.30864197122053194 -0.3429355213071966, 2.4000000953674316 0.705882361190954 0.08650518545860844 -0.050885401783649066, 4.0 0.8 0.04000000000000001 -0.016 | -inf nan, -0.0 -0.0, 0.0 0.0, inf nan, nan nan'
behind docs/api.md '| `ht::gelu` |' '| `ht::softsign` | `halftone/kernel/map/expression/function.hpp`, `halftone/autodiff/op/elementwise.hpp` | x / (1 + abs(x)) |'
behind include/halftone/kernel/map/expression/function.hpp 'using symbolic::tanh;' '
namespace symbolic {
namespace op {
/// a / (1 + |a|).
struct softsign {
    static constexpr double ulp = 2;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) { return a / (V(1) + (a < V(0) ? -a : a)); }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return one{} / symbolic::square(1 + symbolic::abs(a)); }
};
}  // namespace op
/// a / (1 + |a|).
template <expression A>
HALFTONE_HD constexpr unary<op::softsign, A> softsign(const A& a) { return {a}; }
}  // namespace symbolic
using symbolic::softsign;'
behind include/halftone/kernel/map/evaluate.simd.hpp 'HALFTONE_INLINE V apply(symbolic::op::erf,' 'template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::softsign, const V& a) { return a / (splat(1.0f) + abs(a)); }'
expect_files 6

# The tests that read the table, and the checks of headers.
cd "$copy"
python3 tests/headers/includes.py >/dev/null
if ctags --version 2>/dev/null | grep 'Universal Ctags' >/dev/null; then python3 tests/headers/api.py >/dev/null; fi
cat >all.cpp <<'CPP'
#include "tests/autodiff/functions.cpp"
#include "tests/autodiff/autocast_types.cpp"
#include "tests/main.cpp"
CPP
"$cxx" -std=c++20 -O0 -Wall -Wextra -Iinclude -Itests "-DHALFTONE_TEST_DATA=\"$copy/tests/golden\"" all.cpp -o all -lpthread
./all >log || { cat log; exit 1; }
grep 'test cases: *2 | *2 passed' log >/dev/null || { cat log; exit 1; }
# Each is seen: with another slope softsign is not PyTorch's.
sed -i 's/one{} \/ symbolic::square(1 + symbolic::abs(a))/one{} \/ (1 + symbolic::abs(a))/' include/halftone/kernel/map/expression/function.hpp
echo '#include "tests/autodiff/functions.cpp"
#include "tests/main.cpp"' >all.cpp
"$cxx" -std=c++20 -O0 -Iinclude -Itests "-DHALFTONE_TEST_DATA=\"$copy/tests/golden\"" all.cpp -o all -lpthread
if ./all >log; then echo "a wrong slope of softsign passes"; exit 1; fi
grep 'Op::name) := softsign' log >/dev/null || { cat log; exit 1; }
echo "hardswish and softsign are complete: ${changed%, }; a wrong slope is seen"
