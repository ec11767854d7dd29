#!/usr/bin/env bash
# Fine-tunes on C3: bash run_c3.sh [flags of run_race.py]
# What is not there is fetched.
#   SIZE       tiny (default), small, base, large, xlarge or xxlarge
#   MODEL_DIR  folder of the checkpoint, in place of the one fetched for SIZE
#   DATA       folder with d-train.json, m-train.json, d-dev.json, m-dev.json
#              (default data/clue/c3)
set -euo pipefail
cd "$(dirname "$0")"
source ./env.sh
source ./model_size.sh
data=${DATA:-data/clue/c3}
"$PYTHON" download.py --item=c3 --target="$data"
"$PYTHON" run_race.py --task_name=c3 --data_dir="$data" --do_train --do_eval \
  --init_checkpoint="$model" --max_seq_length=512 \
  --train_batch_size="$batch" --learning_rate="$rate" \
  --num_train_epochs="$epochs" --output_dir="output/c3_$SIZE" "$@"
