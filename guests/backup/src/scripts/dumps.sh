refuse() {
  printf '%s\n' "$name: the dump $1" >&2
  return 1
}
hex() {
  od -An -v -tx1 | tr -d ' \n'
}
last() {
  tail -c "$1" "$dump" | head -c "$2" | hex
}
ends_with() {
  tail -c 1024 | grep -q -e "$1" -e "${2-$1}" || refuse "$cut"
}
read_by() {
  "$@" >/dev/null || refuse "is not complete: $1 cannot read it"
}
has_hash() {
  size=`stat -c %s "$dump"`
  size=`expr "$size" - 32`
  [ "$size" -gt 0 ] || return 1
  hash=`head -c "$size" "$dump" | sha256sum | cut -c 1-64`
  [ "$hash" = "`last 32 32`" ]
}
is_whole() {
  if [ -d "$dump" ]; then
    [ "$type" != postgresql ] || read_by pg_restore --file=/dev/null "$dump"
    return
  fi
  [ -s "$dump" ] || [ "$type" = mongodb ] || { refuse "is empty"; return; }
  start=`head -c 8 "$dump" | hex`
  case $start in
  1f8b*) read_by gzip -t "$dump" || return ;;
  esac
  case $type:$start in
  postgresql:5047444d50* | postgresql:746f632e646174*) read_by pg_restore --file=/dev/null "$dump" ;;
  postgresql:1f8b*) gzip -dc "$dump" | ends_with "$complete" ;;
  postgresql:28b52ffd*) zstd -dc "$dump" | ends_with "$complete" ;;
  postgresql:04224d18*) lz4 -dc "$dump" | ends_with "$complete" ;;
  postgresql:*) ends_with "$complete" <"$dump" ;;
  mysql:*) ! head -n 5 "$dump" | grep -q -e '^-- M' -e '^<?xml' || ends_with '^-- Dump completed' '^</mysqldump>' <"$dump" ;;
  sqlite:*)
    case `tail -n 1 "$dump"` in
    COMMIT*) ;;
    ROLLBACK*) refuse "is not complete: SQLite met errors in the file" ;;
    *) refuse "$cut" ;;
    esac
    ;;
  redis:5245444953* | redis:56414c4b4559*) [ "`last 9 1`" = ff ] || refuse "$cut" ;;
  redis:*) refuse "is not an RDB file" ;;
  mssql:504b0304*) [ "`last 22 4`" = 504b0506 ] || refuse "$cut" ;;
  mssql:*) refuse "is not a bacpac file" ;;
  etcd:*) has_hash || refuse "$cut" ;;
  mongodb:6de29981*) [ "`last 4 4`" = ffffffff ] || refuse "$cut" ;;
  mongodb:1f8b*) ;;
  mongodb:?*)
    case $dump in
    *.bson) [ "`last 1 1`" = 00 ] || refuse "$cut" ;;
    *.json) tail -c 2 "$dump" | ends_with '}$' ;;
    esac
    ;;
  esac
}
has_content() {
  case $type in
  mongodb) find "$path" -type f \( -name '*.bson' -o -name '*.bson.gz' -o -name '*.archive*' \) | grep -q . ;;
  mariadb) [ -s "$path/xtrabackup_info" ] || [ -s "$path/mariadb_backup_info" ] ;;
  influxdb2) find "$path" -type f -name '*.manifest' | grep -q . ;;
  *) find "$path" -mindepth 1 | grep -q . ;;
  esac
}
check_dump() {
  type=$1 path=$2 name=$3
  complete='^-- PostgreSQL database .*dump complete$'
  cut="is not complete: its end is missing"
  list=${TMPDIR:-/tmp}/dumps
  case $type in
  etcd) set -- "$path"-* ;;
  *)
    has_content || { refuse "has no content"; return 1; }
    set -- "$path"/*
    ;;
  esac
  case $type in
  # A server may have empty files.
  mariadb) return 0 ;;
  mongodb) find "$path" -type f >"$list" ;;
  *) printf '%s\n' "$@" >"$list" ;;
  esac
  while IFS= read -r dump; do
    is_whole || return 1
  done <"$list"
}
