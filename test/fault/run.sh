#!/bin/sh
# `npm run fault`: crashes of every process of the distributed platform. `npm run fault -- kubernetes`: a cluster's, whole.
set -eu
cd "$(dirname "$0")/../.."
case "${1:-distributed}" in
  distributed) exec vitest run --project distributed test/fault/distributed ;;
  kubernetes) exec vitest run --project engine --project fault test/fault/kubernetes test/fault/long/kubernetes ;;
  *)
    echo "usage: npm run fault [-- distributed|kubernetes]" >&2
    exit 2
    ;;
esac
