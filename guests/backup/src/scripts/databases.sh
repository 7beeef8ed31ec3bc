foreign='
/^[ \t]*(\/\*!?[0-9]*)?[ \t]*[UuCcDd]/ {
  gsub(/\/\*![0-9]*|\*\/|;/, " ")
  at = 2
  if (toupper($1) == "USE") {
    # A hint of a query in a trigger or a routine, whose lines a dump keeps.
    if (toupper($2) ~ /^(INDEX|KEY)(\(|$)/) next
  } else {
    if (toupper($1) !~ /^(CREATE|DROP)$/ || toupper($2) !~ /^(DATABASE|SCHEMA)$/) next
    for (at = 3; toupper($at) ~ /^(IF|NOT|EXISTS)$/; at++);
  }
  target = ENVIRON["TARGET"]
  if (NF >= at && $at != target && $at != "`" target "`") { print substr($at, 1, 200); exit }
}
'
dump() {
  for file in "/work/unpacked/$3"/*; do
    [ -e "$file" ] || fail "$2: the archive has no dump of it"
    (check_dump "$1" "/work/unpacked/$3" "$2") || fail "$2: the dump cannot be restored, and nothing was changed"
    return 0
  done
}
plain() {
  "$1" -dc "$file" >/work/plain.sql || fail "$name: $1 cannot read the dump, and nothing was changed"
  file=/work/plain.sql is_plain=1
}
postgresql() {
  dump postgresql "$1" "$2"
  name=$1
  export PGPASSWORD="$7"
  set -- --host="$3" --port="$4" ${5:+--username="$5"} --dbname="$6"
  is_plain=
  if [ ! -d "$file" ]; then
    case `head -c 8 "$file" | hex` in
    5047444d50* | 746f632e646174*) ;;
    1f8b*) plain gzip ;;
    28b52ffd*) plain zstd ;;
    04224d18*) plain lz4 ;;
    *) [ "$file" = "${file%.sql}" ] || is_plain=1 ;;
    esac
  fi
  if [ -n "$is_plain" ]; then
    psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --single-transaction "$@" --file="$file" >/dev/null
  else
    pg_restore --clean --if-exists --no-owner --exit-on-error --single-transaction "$@" "$file"
  fi && {
    if [ -n "$is_plain" ]; then cat "$file"; else pg_restore --schema-only --file=- "$file"; fi | expect_postgresql
    [ -s /work/expected ] || return 0
    present_postgresql "$@" || fail "$name: the restored database cannot be read"
    compare "$name" "and the rest was"
    return 0
  }
  [ -z "$is_plain" ] || ! grep -q '^COMMIT;' "$file" ||
    fail "$name: the dump cannot be restored; its large objects commit themselves, so a part of it may have been"
  fail "$name: the dump cannot be restored, and nothing was changed"
}
client() {
  host=$3 port=$4 user=$5 base=$6
  shift 7
  mysql "$@" --host="$host" --port="$port" ${user:+--user="$user"} ${base:+"$base"}
}
mysql_() {
  dump mysql "$1" "$2"
  export MYSQL_PWD="$7"
  if [ -n "$6" ]; then
    other=`TARGET="$6" LC_ALL=C awk "$foreign" "$file"` || fail "$1: the dump cannot be checked: the image needs awk"
    [ -z "$other" ] || fail "$1: the dump would change the database $other; make it without --databases in args"
  fi
  client "$@" <"$file" ||
    fail "$1: the dump cannot be restored; what came before the error was"
  TARGET="$6" expect_mysql <"$file"
  [ -s /work/expected ] || return 0
  present_mysql "$@" || fail "$1: the restored database cannot be read"
  compare "$1" "and the rest was"
}
sqlite() {
  dump sqlite "$1" "$2"
  new="$3.restored"
  rm -f "$new" && : >"$new" && { [ ! -f "$3" ] || chmod "`stat -c %a "$3"`" "$new"; } ||
    fail "$1: $new cannot be written; set securityContext to the owner of its directory"
  sqlite3 -batch -bail "$new" <"$file" >/dev/null && [ "`sqlite3 "$new" 'PRAGMA quick_check'`" = ok ] ||
    fail "$1: the dump cannot be restored, and nothing was changed"
  expect_sqlite <"$file" >/work/expected
  sqlite3 "$new" .dump | expect_sqlite >/work/present
  compare "$1" "and nothing was changed"
  # SQLite would take them for changes of the new file.
  rm -f "$3-wal" "$3-shm" "$3-journal" && mv -f "$new" "$3" || fail "$1: $3 cannot be replaced; $new has the content of the dump"
}
files() {
  packed="/work/unpacked/$1/archive.tar"
  [ -f "$packed" ] || fail "the archive has no files"
  whole_files "$packed"
  mkdir -p "$2" && tar -xpf "$packed" -C "$2" ||
    fail "the files cannot be restored below $2: make its volume writable, and set securityContext to its owner"
  compare_files "$packed" "$2"
  [ "`id -u`" != 0 ] || return 0
  own=`id -u`/`id -g`
  others=`awk -v own="$own" '$2 != own && $2 ~ /^[0-9]+\/[0-9]+$/ && !known[$2]++ && ++count < 6 { printf "%s%s", separator, $2; separator = ", " }' /work/listed`
  [ -z "$others" ] || echo "owners were not kept: files of $others (user/group) belong to $own now: give them their owners, or set securityContext to that of most of them"
}
