fetch() {
  mkdir -p /work/fetched || fail "the volume for the archive is not writable"
  for option in PASS KEY_FILE_PASS; do
    eval "value=\${FETCH_$option-}"
    [ -n "$value" ] || continue
    value=`printf '%s' "$value" | rclone obscure -` || fail "rclone cannot obscure the storage's password"
    export "RCLONE_CONFIG_SRC_$option=$value"
  done
  rclone --config "" copy "src:$DIRECTORY$FILE" /work/fetched || fail "rclone cannot fetch $FILE from the storage"
  set -- /work/fetched/*
  [ -e "$1" ] || fail "there is no file $FILE in the storage"
}
