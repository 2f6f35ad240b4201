#!/bin/sh
# `npm run clean`: removes what the platform of SANDGATE_DATA made on the container engine and on this machine; with
# `-- --data` that folder too.
set -u
cd "$(dirname "$0")/../.." || exit 1
. deploy/local/prepare.sh

prepare_packages
exec "$node" deploy/local/src/clean.ts "$@"
