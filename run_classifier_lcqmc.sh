#!/usr/bin/env bash
# Fine-tunes a model on LCQMC, by default tiny: length 128, batch 64, rate 1e-4, 5
# epochs.
# Missing data and models are downloaded; if albert_tiny cannot be,
# albert_tiny_starter is used, with a notice. Flags of run_classifier.py may
# follow and override, as --flag=value.
#   SIZE        tiny (default), small, base, large, xlarge or xxlarge
#   MODEL       folder or released model, instead of the released one of that size
#   LCQMC_DATA  folder with train.txt, dev.txt, test.txt (default data/lcqmc)
set -euo pipefail
cd "$(dirname "$0")"
source albert/shell.sh && usage "-.*" "$@"
read_size
source ./env.sh
data=${LCQMC_DATA:-data/lcqmc} out=output/lcqmc
[[ $size == tiny ]] || out+=_$size
for word in "$@"; do
  [[ $word != --output_dir=* ]] || out=${word#*=}
done
find_model
"$PYTHON" -m albert.download --item=lcqmc --target="$data"
"$PYTHON" run_classifier.py \
  --task_name=lcqmc \
  --data_dir="$data" \
  --do_train --do_eval --do_predict \
  --init_checkpoint="$model" \
  --max_seq_length=128 \
  --train_batch_size="$max_batch" \
  --learning_rate="${size_rate:-1e-4}" \
  --num_train_epochs=5 \
  --output_dir="$out" \
  "$@"
[[ -z $notice ]] || echo "$notice"
cat "$out/best/eval_results.txt"
