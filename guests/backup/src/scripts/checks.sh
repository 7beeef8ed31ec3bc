feed='
'
return=`printf '\r'`
next=`printf '\302\205'`
line=`printf '\342\200\250'`
paragraph=`printf '\342\200\251'`
check() {
  value=${3%"$feed"}
  for break in "$feed" "$return" "$next" "$line" "$paragraph"; do
    case $value in
    *"$break"*) fail "$2: the value has several lines; gobackup only reads one-line credentials" ;;
    esac
  done
  [ "$1" != value ] || return 0
  case $value in
  *[[:space:]]*) fail "$2: the value has white space, where gobackup splits the command line" ;;
  esac
  [ "$1" != word ] || return 0
  case $value in
  -*) fail "$2: the value begins with a dash, as an option does" ;;
  esac
  [ "$1" != operand ] || return 0
  case $value in
  SHELL) fail "$2: the value has a character that pg_dumpall's shell would act on" ;;
  esac
}
sqlite() {
  [ -f "$2" ] || fail "$1: there is no file $2; correct config.path, or mount the volume that has it"
  [ -r "$2" ] || fail "$1: user `id -u` cannot read $2; set the parent's securityContext to its owner or group"
  [ "`head -c 15 "$2" | tr -d '\000'`" = "SQLite format 3" ] || fail "$1: $2 is not a SQLite database: it is empty, encrypted or from another program"
  checked=`sqlite3 -batch -cmd '.timeout 10000' "$2" 'PRAGMA quick_check' 2>&1 | head -n 3`
  [ "$checked" = ok ] || fail "$1: SQLite cannot read $2, which may be corrupt or locked; one in WAL mode needs a volume with readOnly: false: $checked"
}
include() {
  path=$1
  user=`id -u`
  shift
  [ ! -L "$path" ] || fail "archive.includes: $path is a symbolic link, and an archive would only contain the link; name its target"
  [ -e "$path" ] || fail "archive.includes: $path does not exist"
  closed=`find "$path" \( "$@" \) -prune -o \( -type f -o -type d \) -exec sh -c 'for file; do
    if [ -r "$file" ] && { [ ! -d "$file" ] || [ -x "$file" ]; }; then continue; fi
    if [ -e "$file" ]; then printf "%s\n" "$file"; fi
  done' sh {} + 2>/dev/null | head -n 1`
  [ -z "$closed" ] || fail "archive.includes: user $user cannot read $closed; set the parent's securityContext to its owner or group, or add the path to archive.excludes"
}
check_version() {
  version=`gobackup --version 2>/dev/null |
    sed -n 's/.*version v\{0,1\}\([0-9]\{1,\}\)\.\([0-9]\{1,\}\)\.\([0-9]\{1,\}\).*/\1 \2 \3/p'`
  set -- $version
  if [ $# -eq 3 ] && [ "$1" -gt 0 ] && [ `expr "$1" \* 1000000 + "$2" \* 1000 + "$3"` -lt 3001001 ]; then
    fail "gobackup $1.$2.$3 is too old: it exits with 0 after errors and loses archives; use an image with 3.1.1 or newer"
  fi
}
