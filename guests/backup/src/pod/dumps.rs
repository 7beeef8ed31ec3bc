//! Checks of the dumps of a run, before gobackup uploads them and before a Restore uses them.
//!
//! gobackup trusts the exit code of the program that dumps. sqlite3 exits with 0 for a file that it cannot read, and
//! mongodump for a database that does not exist. A dump is therefore complete if its own end is there.

/// The name of the file with [`CHECK`] in the home directory of a run.
pub(crate) const FILE: &str = "check-dump";

/// Checks the dumps of one database: `check_dump TYPE PATH NAME`. PATH is the directory of the dump, or its start for etcd,
/// whose dump has the endpoint in its name.
///
/// The end of each format:
///
/// | format | end |
/// |---|---|
/// | pg_dump, plain | the comment `database dump complete` or `database cluster dump complete` |
/// | pg_dump, custom, directory, tar | pg_restore reads all of it |
/// | mysqldump | the comment `Dump completed` if the dump begins with a comment, or the end of the XML |
/// | mariadb-backup | the file that it writes last |
/// | mongodump | each document ends with a zero, an archive with its terminator |
/// | Redis | the opcode before the checksum |
/// | etcd | the SHA-256 of the rest |
/// | SQL Server | the directory of the zip file |
/// | InfluxDB | the manifest, and that of each compressed file |
/// | SQLite | COMMIT |
/// | Firebird | gbak's format has none that a shell can tell |
pub(crate) const CHECK: &str = r#"refuse() {
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
"#;

/// The file with the check of one database: `check-dump TYPE KEY NAME`.
pub(crate) fn file() -> String {
    format!("{CHECK}check_dump \"$1\" \"`echo \"$TMPDIR\"/gobackup*/*/\"$MODEL/$1/$2\"`\" \"$3\"\n")
}
