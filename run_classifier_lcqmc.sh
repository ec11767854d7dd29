#!/usr/bin/env bash
# Fine-tunes the tiny model on LCQMC: length 128, batch 64, rate 1e-4, 5 epochs.
# What is not there is downloaded; albert_tiny_starter stands in for a model that
# cannot be. Flags of run_classifier.py may follow and override, as --flag=value.
#   MODEL_DIR   folder of a checkpoint, instead of albert_tiny
#   LCQMC_DATA  folder with train.txt, dev.txt, test.txt (default data/lcqmc)
set -euo pipefail
cd "$(dirname "$0")"
source requirements/usage.sh && usage "-.*" "$@"
source ./env.sh
data=${LCQMC_DATA:-data/lcqmc} model=${MODEL_DIR-}
[[ -n $model ]] || model=$("$PYTHON" -m albert.download --or_starter \
  --item=albert_tiny --target=albert_tiny)
"$PYTHON" -m albert.download --item=lcqmc --target="$data"
"$PYTHON" run_classifier.py \
  --task_name=lcqmc \
  --data_dir="$data" \
  --do_train --do_eval --do_predict \
  --init_checkpoint="$model" \
  --max_seq_length=128 \
  --train_batch_size=64 \
  --learning_rate=1e-4 \
  --num_train_epochs=5 \
  --output_dir=output/lcqmc \
  "$@"
