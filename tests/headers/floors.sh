#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Checks the structure of the source tree without compiling: a header includes only headers of lower floors or of its own floor; there
# are no include cycles; every file begins with its SPDX line; no header exceeds 600 lines without a reason near its top; the folders of
# operations in kernel/, and autodiff/ and observe/, contain the expected files; headers leave at most 22 macros named HALFTONE_*
# defined; a header that names a SIMD body includes what the body includes; no script pipes into grep -q; each source of a test
# program has a namespace of its own; and headers divide and round up by one function (rounding.py).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
status=0

# Sources and scripts outside the headers: the SPDX line is the first, or the second below a "#!".
while IFS= read -r -d '' file; do
    if ! head -n 2 "$file" | grep 'SPDX-License-Identifier: MIT$' >/dev/null; then
        echo "$file: does not begin with its SPDX line"
        status=1
    fi
done < <(find CMakeLists.txt .clang-format .clang-tidy .gitignore .ci cmake src tests examples bench -type f \
    \( -name '*.hpp' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.cu' -o -name '*.sh' -o -name '*.awk' -o -name '*.py' \
    -o -name 'CMakeLists.txt' -o -name '*.cmake' -o -name '*.in' -o -name '.*' -o -path '.ci/run' \) -print0)

# grep -q ends at its first match; under pipefail the command that still writes to it then fails by SIGPIPE, now and then.
if git -C "$root" rev-parse >/dev/null 2>&1 && git grep -nE '\| *grep -[a-zA-Z]*q' -- '*.sh' '.ci/run'; then
    echo "write | grep ... >/dev/null, which reads all of it"
    status=1
fi

# Several sources of a test program are compiled as one, so each has a namespace named after its path; tests/CMakeLists.txt lists those
# that are compiled by themselves.
alone=$(sed -n '/^set(halftone_tests_alone/,/)$/p' tests/CMakeLists.txt | grep -v '#' | tr -s ' ()' '\n')
while IFS= read -r file; do
    name=${file#tests/} name=${name%.cpp}
    if [[ $'\n'$alone$'\n' == *$'\n'"$name"$'\n'* ]]; then continue; fi
    folder=${name%/*}
    if [[ ${name##*/} == "${folder##*/}" ]]; then name=$folder; fi
    if ! grep -q "^namespace ${name//\//_}_tests {\$" "$file"; then
        echo "$file: expected its tests in namespace ${name//\//_}_tests"
        status=1
    fi
done < <(grep -rlE '^ *TEST_CASE' tests --include='*.cpp')

# The inline namespace names the version, by which halftone::compiled and sources of another version keep apart.
version=$(sed -n 's/^#define HALFTONE_VERSION_[A-Z]* \([0-9]*\)$/\1/p' include/halftone/version.hpp | paste -sd _)
if ! grep -q "^#define HALFTONE_ABI HALFTONE_JOIN(v$version, " include/halftone/config.hpp; then
    echo "include/halftone/config.hpp: HALFTONE_ABI does not begin with v$version, which version.hpp says"
    status=1
fi

# What only src/functions.cpp reads stands in a file of its own: no condition about the library spans code.
for header in $(grep -rl '^#if.*HALFTONE_COMPILED_FUNCTIONS' include | grep -v '^include/halftone/config.hpp$'); do
    echo "$header: has bodies for src/functions.cpp alone, which belong into its .body.hpp"
    status=1
done
for body in $(find include -name '*.body.hpp'); do
    if [[ $(tail -n 3 "${body%.body.hpp}.hpp") != "#if defined(HALFTONE_OUT_OF_LINE)"$'\n'"#include <${body#include/}>"$'\n'"#endif" ]]; then
        echo "${body%.body.hpp}.hpp: does not end with its bodies, ${body#include/}"
        status=1
    fi
done

cd include
find halftone \( -name '*.hpp' -o -name '*.cuh' \) -print0 | LC_ALL=C sort -z |
    xargs -0 awk -f "$root/tests/headers/floors.awk" || status=1
exit "$status"
