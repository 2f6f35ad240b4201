# Sourced by prepare.sh, from the repository's root, for what this folder is.

# No registry can have this name, so no other image ever comes for it. The tag is of all that makes the image: when that
# changes, the next start builds it, and the platform's default image follows.
default_image=localhost/sandgate/default:$(cksum deploy/local/default-image/* | LC_ALL=C sort | cksum | cut -d ' ' -f 1)

# Prints the path of a statically linked busybox, unpacked below $1 when the machine has none.
find_busybox() {
  case $(ldd /bin/busybox 2>&1) in
    *"not a dynamic executable"* | *"statically linked"*)
      echo /bin/busybox
      return
      ;;
  esac
  has_apt || return 1
  mkdir "$1/package" && (
    cd "$1/package" || exit 1
    apt-get download busybox-static || { apt-get update && apt-get download busybox-static; }
    dpkg-deb -x ./*.deb .
  ) >/dev/null 2>&1 || return 1
  echo "$1/package/bin/busybox"
}

# Builds the default image on the engine. Everything else works without one, so a failure is only reported.
prepare_default_image() {
  say "building the default image $default_image ..."
  context=$(mktemp -d)
  mkdir -p "$context/rootfs/www"
  cp deploy/local/default-image/Dockerfile "$context"
  cp deploy/local/default-image/start "$context/rootfs"
  cp deploy/local/default-image/index.html "$context/rootfs/www"
  if busybox=$(find_busybox "$context"); then
    base=scratch
    mkdir -p "$context/rootfs/bin" "$context/rootfs/etc" "$context/rootfs/root"
    mkdir -m 1777 "$context/rootfs/tmp"
    cp "$busybox" "$context/rootfs/bin/busybox"
    for applet in $("$busybox" --list); do
      [ "$applet" = busybox ] || ln -s busybox "$context/rootfs/bin/$applet"
    done
    echo 'root:x:0:0:root:/root:/bin/sh' >"$context/rootfs/etc/passwd"
    echo 'root:x:0:' >"$context/rootfs/etc/group"
  else
    base=busybox:1.36.1
  fi
  tar -C "$context" --exclude=./package -c . | engine build-image "$default_image" "$base" ||
    say "the default image could not be built; a sandbox made from it will fail"
  rm -rf "$context"
}
