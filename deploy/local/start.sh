#!/bin/sh
# `npm start`: the whole platform in one process. Installs what the machine lacks, says what it does, and hands over to
# the launcher. Nothing here needs a network once everything is installed.
set -u
cd "$(dirname "$0")/../.." || exit 1
. deploy/local/prepare.sh

prepare_packages
case ${SANDGATE_RUNTIME:-} in
  # A cluster brings its nodes, which pull every image from a registry.
  kubernetes:*) ;;
  *)
    engine has-image "$default_image" 2>/dev/null || {
      prepare_engine
      prepare_default_image
    }
    export SANDGATE_DEFAULT_IMAGE="${SANDGATE_DEFAULT_IMAGE-default=$default_image,8080}"
    ;;
esac

# In the background: the platform starts meanwhile, and serves the dashboard once it is built. Quick when it is.
case ${SANDGATE_DASHBOARD:-} in
  false | 0 | off | no) ;;
  *) "$node" dashboard/build.ts || say "the dashboard could not be built; its error is above" ;;
esac &

# Spares every later start, and each database's writer thread, the stripping of types: half the time and memory of those
# threads.
export NODE_COMPILE_CACHE="${NODE_COMPILE_CACHE-$PWD/node_modules/.cache/node}"
# glibc gives each thread memory of its own to allocate from, of which much stays unused: 10 to 15 MB in all with its
# default.
export MALLOC_ARENA_MAX="${MALLOC_ARENA_MAX-2}"
# Unless these are set (bytes), it keeps more of what is freed the larger the blocks were, up to 64 MiB: 35 MB here.
export MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_-4194304}"
export MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_-4194304}"
# The young generation takes up to three times this (MiB). Under load 4 took an eighth more processor time for each
# request, 16 a fifth less and 32 a quarter less, and 32 some 100 MB more; the rest of the memory differs more between
# runs (docs/benchmarks.md).
exec "$node" --max-semi-space-size=4 deploy/local/src/main.ts
