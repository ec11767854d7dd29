#!/usr/bin/env bash
# Pretrains with the published settings on the devices you have:
#   bash run_pretraining.sh                          one GPU, or the CPU
#   GPUS=8 bash run_pretraining.sh                   the GPUs of this host
#   HOSTS=a:8,b:8 bash run_pretraining.sh            the GPUs of several hosts
#   TPU_NAME=my-tpu TPU_CORES=32 bash run_pretraining.sh
# or, with PRESET=two_cores, a tiny model in an hour on two cores.
#   INPUT         record files to train on, globs (default: those that
#                 create_pretrain_data.sh made)
#   HELDOUT       records to evaluate at every checkpoint (default: likewise, if
#                 INPUT is not given)
#   OUTPUT        folder of the model (default output/pretrained)
#   CONFIG        configuration of the model
#   BATCH         examples per step over all devices (default 4096); the
#                 published rate is scaled by the square root of BATCH / 4096
#   DEVICE_BATCH  examples that fit into one device (default 32, on a CPU 8);
#                 gradients of more are accumulated
# Flags of run_pretraining.py may follow and override, as --flag=value.
set -euo pipefail
cd "$(dirname "$0")"
source albert/shell.sh && usage "-.*" "$@"

if [[ -n ${INPUT-} ]]; then
  heldout=${HELDOUT-}
else
  INPUT='output/pretrain/train/*.tfrecord'
  heldout=${HELDOUT-output/pretrain/heldout/*.tfrecord}
fi
case ${PRESET:-published} in
  published)
    config=albert_config/albert_config_base.json batch=${BATCH:-4096}
    rate=$(awk -v batch="$batch" \
      'BEGIN { printf "%.3g", 0.00176 * sqrt(batch / 4096) }')
    flags=(--max_seq_length=512 --max_predictions_per_seq=51 --optimizer=lamb
      --learning_rate="$rate" --num_train_steps=125000
      --num_warmup_steps=12500 --save_checkpoints_steps=5000) ;;
  two_cores)
    config=albert_config/albert_config_tiny_google.json batch=${BATCH:-16}
    flags=(--max_seq_length=64 --max_predictions_per_seq=25 --optimizer=adamw
      --learning_rate=5e-4 --num_train_steps=7000 --num_warmup_steps=500
      --save_checkpoints_steps=500 --max_eval_steps=15
      ${heldout:+--early_stop_evals=3}) ;;
  *) refuse "PRESET=$PRESET" "it can be published or two_cores" ;;
esac
config=${CONFIG:-$config}

source ./env.sh
launcher=() processes=1 devices=1
if [[ -n ${TPU_NAME-} ]]; then
  devices=${TPU_CORES:-8}
  flags+=(--use_tpu --tpu_name="$TPU_NAME" --num_tpu_cores="$devices"
    --eval_batch_size=$((devices > 32 ? devices : 32)))
elif [[ -n ${HOSTS-} ]]; then
  processes=0
  for host in ${HOSTS//,/ }; do
    processes=$((processes + ${host##*:}))
  done
  devices=$processes
  launcher=(horovodrun -np "$processes" -H "$HOSTS")
  flags+=(--use_horovod)
elif [[ -n ${GPUS-} ]]; then
  devices=$GPUS
  flags+=(--num_gpus="$GPUS")
fi

# On a CPU, a step can be interrupted between its slices.
device_batch=32
if [[ -z ${PRESET-}${TPU_NAME-}${HOSTS-}${GPUS-} ]] &&
  ! nvidia-smi >/dev/null 2>&1; then
  device_batch=8
fi
device_batch=${DEVICE_BATCH:-$device_batch}
# The fewest slices that fit, of equal size.
if ((batch % devices)); then
  refuse "BATCH=$batch" "not a multiple of the $devices devices"
fi
share=$((batch / devices))
slices=$(((share + device_batch - 1) / device_batch))
while ((share % slices)); do slices=$((slices + 1)); done
echo "$devices device(s), each $slices x $((share / slices)) of $batch examples"

set -x
${launcher[@]+"${launcher[@]}"} "$PYTHON" run_pretraining.py --do_train \
  --input_file="$INPUT" ${heldout:+--eval_input_file="$heldout"} \
  --bert_config_file="$config" --output_dir="${OUTPUT:-output/pretrained}" \
  --train_batch_size=$((batch / processes)) \
  --gradient_accumulation_steps="$slices" "${flags[@]}" "$@"
