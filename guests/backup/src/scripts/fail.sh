set -u
fail() {
  printf '%s\n' "$1" >&2
  printf '%s\n' "$1" >>/dev/termination-log
  exit 1
}
