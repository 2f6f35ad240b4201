#!/bin/sh
# `npm run fault`: crashes of every process of the distributed platform. `npm run fault -- kubernetes`: faults of a
# cluster, and the conformance suite on pods. `npm run fault -- use`: the platform is killed while sandboxes are used
# (SANDGATE_FAULT_KILLS times, 100 unless set), and sandboxes end and start (SANDGATE_FAULT_ENDS times, 1,000 unless set),
# of which none is reached by what led to another; a command is silent for ten minutes (SANDGATE_FAULT_SILENCE_SECONDS), and
# a file of 1 GiB goes there and back. `npm run fault -- clients`: a client makes a thousand sandboxes over a network that
# cuts, delays and repeats (SANDGATE_FAULT_SANDBOXES). Further arguments go to vitest.
set -eu
cd "$(dirname "$0")/../.."
if [ "${1:-}" = kubernetes ]; then
  shift
  exec vitest run --project kubernetes --project fault test/fault/kubernetes test/fault/long/kubernetes "$@"
fi
if [ "${1:-}" = use ]; then
  shift
  exec vitest run --project fault test/fault/long/use "$@"
fi
if [ "${1:-}" = clients ]; then
  shift
  export SANDGATE_FAULT_SANDBOXES="${SANDGATE_FAULT_SANDBOXES:-1000}"
  exec vitest run --project programs test/clients/faults "$@"
fi
exec vitest run --project distributed test/fault/distributed "$@"
