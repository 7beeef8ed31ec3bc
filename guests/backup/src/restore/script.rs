//! The scripts of a restoration, for the `sh` of busybox and for dash.
//!
//! The first fetches the archive with rclone. The second decrypts and unpacks it and restores one database
//! after the other; it stops at the first error. As in the script of a run, there is no `$(`, which the kubelet
//! might expand, and the output passes the filter that replaces the values of Secrets.

use std::fmt::Write;

use serde_json::Value;

use super::{
    Restoration, complete,
    remote::PLAIN,
    target::{Target, is_file},
};
use crate::pod::{
    dumps::CHECK,
    script::{FAIL, quoted, redact},
};

/// Takes line feeds off the end of the values of Secrets, as gobackup does.
const TRIM: &str = r#"for name in $SECRETS; do
  case $name in
  /*) continue ;;
  esac
  eval "value=\${$name-}"
  value=`printf '%s' "$value"`
  eval "$name=\$value"
  export "$name"
done
"#;

/// Fetches the archive, or all chunks of a split one.
const FETCH: &str = r#"fetch() {
  mkdir -p /work/fetched || fail "the volume for the archive is not writable"
  for option in PASS KEY_FILE_PASS; do
    eval "value=\${PLAIN$option-}"
    [ -n "$value" ] || continue
    value=`printf '%s' "$value" | rclone obscure -` || fail "rclone cannot obscure the password of the storage"
    export "RCLONE_CONFIG_SRC_$option=$value"
  done
  rclone --config "" copy "src:$DIRECTORY$FILE" /work/fetched || fail "rclone cannot fetch $FILE from the storage"
  set -- /work/fetched/*
  [ -e "$1" ] || fail "there is no file $FILE in the storage"
}
"#;

/// Decrypts and unpacks the archive. A split one has several files, in the order of their names.
const UNPACK: &str = r#"unpack() {
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
    [ -n "${ENC_PASSWORD-}" ] || fail "$FILE is encrypted, and encodeWith of the parent has no password"
    cat "$@" | openssl CIPHER -d -pass env:ENC_PASSWORD >/work/packed ||
      fail "openssl cannot decrypt $FILE: the password, the cipher or the arguments differ from those of the backup"
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
"#;

/// Restores one database: `postgresql NAME DIRECTORY HOST PORT USER DATABASE PASSWORD`, `mysql_` alike, with options of the
/// client after them, or `sqlite NAME DIRECTORY FILE`.
///
/// gobackup names a dump of PostgreSQL by `compress` alone, so one in another format of `args` has the name of a plain one,
/// and its first bytes tell: those of pg_restore (custom, directory and tar), or those of a compressed plain one. It is restored in one transaction, so a failure changes nothing, and neither does a dump that
/// creates its database, which a transaction cannot. pg_dump writes the data of large objects with a COMMIT of their own
/// into a plain dump, which ends the transaction. mysqldump can write statements that choose another database
/// than that of the command line; they begin a line, which no value does.
const DATABASES: &str = r#"foreign='
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
  [ -z "$others" ] || echo "OWNERfiles of $others (user/group) belong to $own now: give them their owners, or set securityContext to that of most of them"
}
"#;

/// Empties a scratch database: `empty_postgresql` with the arguments of `postgresql`, `empty_mysql_` alike.
///
/// A setting may name a live database by mistake, so nothing is deleted from one that has content, unless an earlier
/// verification marked it when it was empty: by a comment in PostgreSQL, by a table in MySQL. No dump has the mark.
const EMPTY: &str = r#"empty_postgresql() {
  PGPASSWORD="$7" psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --single-transaction \
    --host="$3" --port="$4" ${5:+--username="$5"} --dbname="$6" --file=- >/dev/null <<'END' ||
DO 'DECLARE name text; BEGIN
  IF (SELECT shobj_description(oid, ''pg_database'') FROM pg_database WHERE datname = current_database())
    IS DISTINCT FROM ''gobackup.io/scratch''
  THEN
    IF EXISTS (SELECT FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
      WHERE nspname !~ ''^pg_'' AND nspname <> ''information_schema'') OR EXISTS (SELECT FROM pg_largeobject_metadata)
    THEN RAISE ''the database has content that no verification made'';
    END IF;
    EXECUTE format(''COMMENT ON DATABASE %I IS %L'', current_database(), ''gobackup.io/scratch'');
  END IF;
  FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ ''^pg_'' AND nspname <> ''information_schema'' LOOP
    EXECUTE format(''DROP SCHEMA %I CASCADE'', name);
  END LOOP;
  PERFORM lo_unlink(oid) FROM pg_largeobject_metadata;
END';
CREATE SCHEMA public;
END
    fail "$1: the scratch database cannot be emptied; name an empty database that its user owns"
}
empty_mysql_() {
  export MYSQL_PWD="$7"
  set -- "$@" --batch --raw --skip-column-names
  is_scratch=`client "$@" <<'END'
SELECT COUNT(*) = 0 OR SUM(table_name = 'gobackup_scratch') = 1 FROM information_schema.tables WHERE table_schema = DATABASE();
END
`
  [ "$is_scratch" = 1 ] || fail "$1: the scratch database cannot be read, or has tables that no verification made; name an empty database"
  client "$@" >/work/emptying <<'END' && client "$@" </work/emptying ||
CREATE TABLE IF NOT EXISTS gobackup_scratch (id INT);
SELECT 'SET FOREIGN_KEY_CHECKS = 0;';
SELECT CONCAT('DROP ', IF(table_type = 'VIEW', 'VIEW', 'TABLE'), ' IF EXISTS `', REPLACE(table_name, '`', '``'), '`;')
FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name <> 'gobackup_scratch';
END
    fail "$1: the scratch database cannot be emptied; give its user all privileges on it"
}
"#;

/// The start of the line of a termination message about owners that a restoration did not keep.
pub(super) const OWNER: &str = "owners were not kept: ";

/// Runs the steps, with the filter of the log, and ends as they do.
const RUN: &str = r#"{
  (steps) 2>&1
  echo $? >"$HOME/.exit"
} | LC_ALL=C awk "$redact" || fail "the filter of the log failed: the image needs awk"
code=`cat "$HOME/.exit"`
[ "${code:-1}" = 0 ] || exit "${code:-1}"
"#;

/// The script of the init container.
pub(super) fn fetch() -> String {
    let fetch = FETCH.replace("PLAIN", PLAIN);
    let redact = redact();
    format!("{FAIL}{TRIM}{fetch}{redact}steps() {{\n  fetch\n}}\n{RUN}")
}

/// The script of the container that restores.
pub(super) fn restore(restoration: &Restoration<'_>) -> String {
    let unpack = UNPACK.replace("CIPHER", &decryption(restoration));
    let mut steps = "steps() {\n  unpack\n".to_owned();
    for target in &restoration.targets {
        let step = database(restoration, target);
        if restoration.is_verification() && !is_file(&target.source) {
            line(&mut steps, &format!("empty_{step}"));
        }
        line(&mut steps, &step);
    }
    if let Some(directory) = &restoration.directory {
        let (model, path) = (quoted(&restoration.model), quoted(directory));
        line(&mut steps, &format!("files {model} {path}"));
    }
    steps.push_str("}\n");
    let empty = if restoration.is_verification() {
        EMPTY
    } else {
        ""
    };
    let redact = redact();
    let databases = DATABASES.replace("OWNER", OWNER);
    let compare = [complete::COMPARE, complete::FILES].concat();
    format!("{FAIL}{TRIM}{unpack}{CHECK}{compare}{databases}{empty}{redact}{steps}{RUN}")
}

fn line(script: &mut String, line: &str) {
    writeln!(script, "  {line}").expect("writing to a String cannot fail");
}

/// The arguments of openssl without the password.
fn decryption(restoration: &Restoration<'_>) -> String {
    let given = restoration.encryption.clone().unwrap_or_default();
    let cipher = given.cipher.filter(|it| !it.is_empty());
    let mut arguments = vec![quoted(cipher.as_deref().unwrap_or("aes-256-cbc"))];
    if given.base64 == Some(true) {
        arguments.push("-base64".to_owned());
    }
    let given = given.args.unwrap_or_default();
    arguments.extend(given.split_whitespace().map(quoted));
    arguments.join(" ")
}

/// The starts of the options of MySQL and MariaDB about TLS and the key of the server, which mysqldump and mysql both have.
const TLS: [&str; 6] = [
    "--disable-ssl",
    "--get-server-public-key",
    "--server-public-key",
    "--skip-ssl",
    "--ssl",
    "--tls",
];

/// The starts of those that have a value, which may be the next word.
const VALUED: [&str; 3] = ["--server-public-key", "--ssl-", "--tls-"];

/// The options of the client among the arguments of a dump: those without which it may refuse the server. Clients of MariaDB
/// 11.4 and later verify its certificate unless they are told not to.
fn tls(args: &str) -> impl Iterator<Item = &str> {
    let mut takes_value = false;
    args.split_whitespace().filter(move |word| {
        let is_option = TLS.iter().any(|it| word.starts_with(it));
        let is_value = takes_value && !word.starts_with('-');
        takes_value = VALUED.iter().any(|it| word.starts_with(it))
            && *word != "--ssl-verify-server-cert"
            && !word.contains('=');
        is_option || is_value
    })
}

/// The file of a database that a verification makes.
const VERIFIED: &str = "/work/verified.db";

/// The step for one database.
fn database(restoration: &Restoration<'_>, target: &Target) -> String {
    let source = &target.source;
    let is_mysql = source.type_.name == "mysql";
    let (host, port, user) = if is_mysql {
        ("127.0.0.1", "3306", "root")
    } else {
        ("localhost", "5432", "")
    };
    let value = |key: &str, default: &str| {
        let variable = format!("DB{}_{}", target.index, key.to_uppercase());
        let credentials = &restoration.plan.rendered.credentials;
        if credentials.iter().any(|it| it.name == variable) {
            return format!("\"${{{variable}-}}\"");
        }
        match source.config.get(key) {
            Some(Value::String(text)) if !text.is_empty() => quoted(text),
            Some(Value::Number(number)) => quoted(&number.to_string()),
            _ => quoted(default),
        }
    };
    let directory = format!(
        "{}/{}/{}",
        restoration.model, source.type_.rendered, target.key
    );
    let all = source.config.get("all_databases") == Some(&Value::Bool(true));
    let name = quoted(&format!("{} {}", source.kind, source.name));
    if is_file(source) {
        let path = if restoration.is_verification() {
            quoted(VERIFIED)
        } else {
            value("path", "")
        };
        return format!("sqlite {name} {} {path}", quoted(&directory));
    }
    let database = if all {
        quoted("")
    } else {
        value("database", "")
    };
    let options: String = match (is_mysql, source.config.get("args")) {
        (true, Some(Value::String(args))) => {
            tls(args).fold(String::new(), |all, it| all + " " + &quoted(it))
        }
        _ => String::new(),
    };
    format!(
        "{} {} {} {} {} {} {database} {}{options}",
        if is_mysql { "mysql_" } else { "postgresql" },
        name,
        quoted(&directory),
        value("host", host),
        value("port", port),
        value("username", user),
        value("password", ""),
    )
}
