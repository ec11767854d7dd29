#!/usr/bin/env bash
# Fine-tunes on CMRC2018: bash run_cmrc2018.sh [flags of run_squad.py]
# What is not there is fetched.
#   SIZE       tiny (default), small, base, large, xlarge or xxlarge
#   MODEL_DIR  folder of the checkpoint, in place of the one fetched for SIZE
#   DATA       folder with train.json and dev.json (default data/clue/cmrc2018)
set -euo pipefail
cd "$(dirname "$0")"
source ./env.sh
source ./model_size.sh
data=${DATA:-data/clue/cmrc2018}
"$PYTHON" download.py --item=cmrc2018 --target="$data"
"$PYTHON" run_squad.py --task_name=cmrc2018 --do_train --do_eval \
  --train_file="$data/train.json" --dev_file="$data/dev.json" \
  --init_checkpoint="$model" --max_seq_length=512 --max_answer_length=50 \
  --train_batch_size="$batch" --learning_rate="$rate" \
  --num_train_epochs="$epochs" --output_dir="output/cmrc2018_$SIZE" "$@"
