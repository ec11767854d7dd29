#!/usr/bin/env bash
# Fine-tunes on C3: bash run_c3.sh [flags of run_race.py]
# What is not there is fetched.
#   SIZE       tiny (default), small, base, large, xlarge or xxlarge: the rate,
#              the epochs and the model that is fetched
#   MODEL_DIR  folder of the checkpoint, in place of that
#   DATA       folder with d-train.json, m-train.json, d-dev.json, m-dev.json
#              (default data/clue/c3)
set -euo pipefail
cd "$(dirname "$0")"
size=${SIZE:-tiny}
case $size in # model, batch, rate, epochs
  tiny) settings="albert_tiny 32 1e-4 3" ;;
  small) settings="albert_small_zh_google 32 1e-4 3" ;;
  base) settings="albert_base_zh 32 3e-5 2" ;;
  large) settings="albert_large_zh 24 2e-5 2" ;;
  xlarge) settings="albert_xlarge_zh_183k 24 2e-5 2" ;;
  xxlarge) settings="- 16 1e-5 2" ;;
  *) echo "ERROR: SIZE=$size: tiny, small, base, large, xlarge, xxlarge" >&2
    exit 1 ;;
esac
read -r item batch rate epochs <<<"$settings"
source ./env.sh
model=${MODEL_DIR:-$item} data=${DATA:-data/clue/c3}
if [[ -z ${MODEL_DIR-} ]]; then
  if [[ $item == - ]]; then
    echo "ERROR: no xxlarge model is known to fetch: set MODEL_DIR" >&2
    exit 1
  fi
  "$PYTHON" download.py --item="$item" --target="$model"
fi
"$PYTHON" download.py --item=c3 --target="$data"
"$PYTHON" run_race.py --task_name=c3 --data_dir="$data" \
  --do_train --do_eval --init_checkpoint="$model" --max_seq_length=512 \
  --train_batch_size="$batch" --learning_rate="$rate" \
  --num_train_epochs="$epochs" --output_dir="output/c3_$size" "$@"
