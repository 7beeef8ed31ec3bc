unpack() {
  set -- /work/fetched/*
  [ -e "$1" ] || fail "the archive was not fetched"
  # A format of names may have the extension too, and the suffix of a chunk has no dot.
  name=${1##*/}
  case ${name##*-} in
  *.*) ;;
  *) name=${name%-*} ;;
  esac
  case $name in
  *.enc)
    [ -n "${ENC_PASSWORD-}" ] || fail "$FILE is encrypted, and the parent's encodeWith has no password"
    cat "$@" | openssl CIPHER -d -pass env:ENC_PASSWORD >/work/packed ||
      fail "openssl cannot decrypt $FILE: the password, the cipher or the arguments differ from the backup's"
    ;;
  *) cat "$@" >/work/packed || fail "the archive cannot be copied to its volume, which may be full" ;;
  esac
  # The tar of busybox does not look for the compression itself.
  case `head -c 6 /work/packed | hex` in
  1f8b*) filter=z ;;
  425a68*) filter=j ;;
  fd377a585a00) filter=J ;;
  *) filter= ;;
  esac
  rm -r /work/fetched
  mkdir -p /work/unpacked
  tar "-x${filter}f" /work/packed -C /work/unpacked || fail "tar cannot unpack $FILE"
  rm /work/packed
}
