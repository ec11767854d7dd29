#!/usr/bin/env bash
# Makes pretraining records of the sample text, with the published settings.
# For your own text: bash create_pretrain_data.sh --input_file='text/*.txt'
#   --output_file=output/pretrain/train.tfrecord
set -euo pipefail
cd "$(dirname "$0")"
source ./env.sh
"$PYTHON" create_pretraining_data.py \
  --input_file=data/text_train.txt \
  --output_file=output/pretrain/train.tfrecord \
  --vocab_file=albert_config/vocab.txt \
  --do_whole_word_mask \
  --max_seq_length=512 \
  --max_predictions_per_seq=51 \
  --masked_lm_prob=0.10 \
  --dupe_factor=10 \
  "$@"
