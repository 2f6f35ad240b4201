#!/bin/sh
# `npm start`: the whole platform in one process. Installs what the machine lacks, says what it does, and hands over to the
# launcher. Nothing here needs a network once everything is installed.
set -u
cd "$(dirname "$0")/../.." || exit 1
. deploy/local/prepare.sh

prepare_packages
engine has-image "$default_image" 2>/dev/null || {
  prepare_engine
  prepare_default_image
}

export SANDGATE_DEFAULT_IMAGE="${SANDGATE_DEFAULT_IMAGE-default=$default_image}"
exec "$node" deploy/local/src/main.ts
