#!/usr/bin/env bash
# Fine-tunes the tiny model on LCQMC: length 128, batch 64, rate 1e-4, 5 epochs.
# Any flag of run_classifier.py may follow and overrides.
#   LCQMC_DATA  folder with train.txt, dev.txt, test.txt (default data/lcqmc)
#   MODEL_DIR   folder of the checkpoint (default albert_tiny)
set -euo pipefail
cd "$(dirname "$0")"
source ./env.sh
data=${LCQMC_DATA:-data/lcqmc} model=${MODEL_DIR:-albert_tiny}
if [[ ! -e $data/train.txt ]]; then
  echo "ERROR: put LCQMC's train.txt, dev.txt and test.txt into $data, or set" \
    "LCQMC_DATA to their folder" >&2
  exit 1
fi
if [[ ! -e $model/albert_model.ckpt.index ]]; then
  echo "ERROR: unpack https://storage.googleapis.com/albert_zh/albert_tiny.zip" \
    "so that $model/albert_model.ckpt.index is there, or set MODEL_DIR" >&2
  exit 1
fi
"$PYTHON" run_classifier.py \
  --task_name=lcqmc \
  --data_dir="$data" \
  --do_train --do_eval --do_predict \
  --bert_config_file=albert_config/albert_config_tiny.json \
  --vocab_file=albert_config/vocab.txt \
  --init_checkpoint="$model/albert_model.ckpt" \
  --max_seq_length=128 \
  --train_batch_size=64 \
  --learning_rate=1e-4 \
  --num_train_epochs=5 \
  --output_dir=output/lcqmc \
  "$@"
