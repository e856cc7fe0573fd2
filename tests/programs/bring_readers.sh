#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Brings the programs of others that the tests readers.NAME run from PyPI into FOLDER, for PYTHONPATH: 190 MB to load, half a minute of
# a processor. Nothing is installed elsewhere. What the folder has already is not brought again.
#
#     tests/programs/bring_readers.sh FOLDER [PACKAGE...]      PACKAGE: what else, as playwright for program.pages and
#                                                            ziglang for portable.libcxx
#
# Perfetto's trace processor is not of PyPI: readers.perfetto runs where it is installed.
set -euo pipefail
folder=$1
shift
# MLflow without what serves and trains models, which is 600 MB, but with its store.
packages=(tensorboard==2.21.0 wandb==0.31.0 mlflow-skinny==3.17.2 sqlalchemy==2.1.9 alembic==1.20.1 trackio==0.43.0 "$@")
# One file of Python, PyTorch's memory_viz; the wheels for macOS are the smallest ones that have it.
torch=torch==2.15.0

if [[ $(cat "$folder/brought" 2>/dev/null) == "${packages[*]} $torch" ]]; then exit 0; fi
pip=(python3 -m pip --disable-pip-version-check --retries 1 --quiet)
part=$folder.part
rm -rf "$folder" "$part"
"${pip[@]}" install --no-compile --no-warn-conflicts --only-binary :all: --target "$part" "${packages[@]}"
mv "$part" "$folder"
"${pip[@]}" download --no-deps --only-binary :all: --platform macosx_14_0_arm64 --python-version 3.11 --dest "$part" "$torch"
python3 - "$part"/torch-*.whl "$folder" <<'PYTHON'
import pathlib, sys, zipfile
pathlib.Path(sys.argv[2], "_memory_viz.py").write_bytes(zipfile.ZipFile(sys.argv[1]).read("torch/cuda/_memory_viz.py"))
PYTHON
rm -rf "$part"
echo "${packages[*]} $torch" >"$folder/brought"
