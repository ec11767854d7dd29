#!/usr/bin/env bash
# Fine-tunes on C3: bash run_c3.sh [flags of run_race.py]
#   SIZE, MODEL_DIR  as for run_cmrc2018.sh
#   DATA             folder with d-train.json, m-train.json, d-dev.json and
#                    m-dev.json (default data/clue/c3)
set -euo pipefail
TASK=c3 exec bash "$(dirname "$0")/run_cmrc2018.sh" "$@"
