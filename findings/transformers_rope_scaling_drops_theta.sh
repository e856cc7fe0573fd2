#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# transformers 5.24.0: a "rope_scaling" added to the config.json of a model that transformers 5 saved, as the cards of long-context models
# ask for, silently replaces the base of the rotary angles by 10000; the same lines in a file of transformers 4 keep it.
#
#     findings/transformers_rope_scaling_drops_theta.sh     # downloads PyPI's transformers 5.24.0 and numpy, removed at the end
#
# Input: a Qwen2Config with a theta of 1,000,000, saved by save_pretrained (which writes rope_parameters, with the theta in it); the same
# configuration in the form of transformers 4 (rope_theta beside); to each a rope_scaling of type yarn, factor 4, is added in the file.
# Expected: one base of 1,000,000 and type yarn in both, or an error that says that the file has both keys.
# Seen: yarn in both, but a base of 10000 in the file of transformers 5, without a warning: the whole of rope_parameters is dropped, and what
# rope_scaling does not say comes from the class's default. And a dictionary that is passed as rope_scaling gets that base written into it, so
# that a second configuration made of it has the first one's base, whatever its own rope_theta says.
# Matters to whoever stretches the context of a saved model: every angle is another, and the model answers nonsense though all shapes fit.
# Reason: transformers/modeling_rope_utils.py: rope_scaling takes the place of rope_parameters where it is not empty, before the base is looked for
# beside it; the base is then put into the caller's dictionary.
#
# Ends with 0 if transformers behaves so, 1 if it behaves otherwise, 2 if the packages cannot be installed.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/packages"
if ! "$folder/packages/bin/pip" install --quiet --disable-pip-version-check transformers==5.24.0 numpy; then
    echo "not checked: transformers 5.24.0 cannot be installed"
    exit 2
fi

cat > "$folder/theta.py" <<'PYTHON'
import json
import pathlib
import sys

import transformers

here = pathlib.Path(sys.argv[1])
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
SIZES = dict(hidden_size=64, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32768)


def read_with_scaling(name, change):
    """Type and base of a configuration whose file gets a rope_scaling."""
    transformers.Qwen2Config(**SIZES, rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0}).save_pretrained(here / name)
    file = here / name / "config.json"
    keys = json.loads(file.read_text())
    change(keys)
    keys["rope_scaling"] = YARN
    file.write_text(json.dumps(keys))
    rope = transformers.AutoConfig.from_pretrained(here / name).rope_parameters
    return rope["rope_type"], rope["rope_theta"]


def of_version_4(keys):
    keys["rope_theta"] = keys.pop("rope_parameters")["rope_theta"]


five = read_with_scaling("five", lambda keys: None)
four = read_with_scaling("four", of_version_4)
given = dict(YARN)
transformers.Qwen2Config(**SIZES, rope_scaling=given)
second = transformers.Qwen2Config(**SIZES, rope_scaling=given, rope_theta=1_000_000.0).rope_parameters["rope_theta"]
fresh = transformers.Qwen2Config(**SIZES, rope_scaling=dict(YARN), rope_theta=1_000_000.0).rope_parameters["rope_theta"]
print(f"transformers {transformers.__version__}; base of the angles, 1000000 in all files")
print("file of transformers 5 with rope_scaling added:", *five)
print("file of transformers 4 with rope_scaling added:", *four)
print("the dictionary passed as rope_scaling afterwards:", given)
print("a second configuration made of it, with rope_theta=1000000:", second, "and of a fresh dictionary:", fresh)
checks = {
    "the file of transformers 5 loses its base": five == ("yarn", 10000.0),
    "the file of transformers 4 keeps its base": four == ("yarn", 1_000_000.0),
    "the caller's dictionary is written to": given.get("rope_theta") == 10000.0,
    "a second configuration made of it has the first one's base": second == 10000.0 and fresh == 1_000_000.0,
}
for what, holds in checks.items():
    print(f"{'so' if holds else 'NOT so'}: {what}")
sys.exit(0 if all(checks.values()) else 1)
PYTHON
"$folder/packages/bin/python" "$folder/theta.py" "$folder" 2>"$folder/messages" || { tail -n 3 "$folder/messages"; exit 1; }
[[ ! -s $folder/messages ]] || { echo "it said:"; head -n 5 "$folder/messages"; }
