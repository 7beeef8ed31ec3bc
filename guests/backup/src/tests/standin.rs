//! A fake gobackup. It takes the steps of gobackup 3.1.1, logs like it, and fails when it does.

use std::fmt::Write as _;

use super::*;

/// The steps of a run. `# STEPS` stands for those that make the archive; without them it is an empty file.
///
/// gobackup stores in one storage after the other, even if one fails. Each has a list of archives, which `keep` needs;
/// gobackup also reads and writes the list in the storage, and only logs failures.
pub(super) const STORING: &str = r#"case ${1-} in
perform) ;;
*) echo "gobackup version v3.1.1"; exit ;;
esac
echo gobackup runs
fail() {
  echo "[Model: $MODEL] $1"
  rm -rf "$TMPDIR/gobackup1"
  exit 1
}
upload() {
  for file in "$1"/*; do
    [ -f "$file" ] || file=$1
    echo "[S3] -> Uploading (`stat -c %s "$file"` B)..."
  done
}
store() {
  state="$GOBACKUP_DIR/cycler/${MODEL}_$1.json" type=s3 path= keep=0
  # STORAGES
  echo "[Storage] => Storage | $type"
  if [ "$type" = local ]; then
    mkdir -p "$path" && cp -a "$stored" "$path/$stored" || fail "cp failed"
    echo "[Cycler] Remote cycler state not found or unavailable: Local is not support download, falling back to local"
  else
    upload "$stored"
    echo "[Cycler] Remote cycler state not found (HTTP 404), falling back to local"
  fi
  list=
  [ ! -f "$state" ] || list=`sed 's/^\[//; s/\]$//' "$state"`
  list="$list${list:+,}{\"file_key\":\"$stored\",\"created_at\":\"2026-08-20T02:00:01Z\"}"
  while [ "$keep" -gt 0 ] && [ `printf '%s\n' "$list" | grep -o file_key | grep -c .` -gt "$keep" ]; do
    first=${list#*:\"} list=${list#*\},}
    first=${first%%\"*}
    rm "$path/$first" && echo "[Cycler] Removed $first" || echo "[Cycler] Remove $first failed: operation not permitted"
  done
  printf '[%s]' "$list" >"$state"
  if [ "$type" = local ]; then
    echo "[Local] Failed to save cycler state to remote storage: cp: cannot stat 'dummy': No such file or directory"
  else
    upload "$state"
    echo "[S3] Saved cycler state to remote storage"
  fi
}
work="$TMPDIR/gobackup1/2"
mkdir -p "$work/$MODEL" && cd "$work" || exit 1
echo "[Model: $MODEL] WorkDir: $work/$MODEL"
stored=f.tar
# STEPS
[ -e "$stored" ] || : >"$stored"
for key in $STORAGES; do
  store "$key"
done
rm -rf "$TMPDIR/gobackup1"
"#;

/// Returns the program for a configuration with one model.
pub(super) fn program(config: &Value) -> String {
    let model = config["models"]
        .as_object()
        .unwrap()
        .values()
        .next()
        .unwrap();
    let mut steps = String::new();
    for (key, database) in model["databases"].as_object().into_iter().flatten() {
        dump(&mut steps, key, database);
    }
    pack(&mut steps, model);
    let mut storages = "case $1 in\n".to_owned();
    for (key, storage) in model["storages"].as_object().unwrap() {
        let [type_, path] = ["type", "path"].map(|key| word(&storage[key]));
        let keep = storage["keep"].as_i64().unwrap_or(0);
        writeln!(storages, "  {key}) type={type_} path={path} keep={keep} ;;").unwrap();
    }
    storages.push_str("  esac");
    STORING
        .replace("# STEPS\n", &steps)
        .replace("# STORAGES", &storages)
}

/// Returns a value as a shell word; for a variable the value.
fn word(value: &Value) -> String {
    let text = match value {
        // gobackup expands variables in the configuration's text.
        Value::String(text) => text.trim_end().replace("${DOLLAR}", "$"),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    match text
        .strip_prefix("${")
        .and_then(|text| text.strip_suffix('}'))
    {
        Some(name) => format!("\"${{{name}}}\""),
        None => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Adds a database's dump. sqlite3 exits with 0 after each error, so only the script after it fails.
fn dump(steps: &mut String, key: &str, config: &Value) {
    let [type_, path, database] =
        ["type", "path", "database"].map(|key| config[key].as_str().unwrap_or_default());
    let directory = format!("\"$work/$MODEL/{type_}/{key}\"");
    let args = config["args"].as_str().unwrap_or_default();
    let command = match type_ {
        "sqlite" => {
            let name = std::path::Path::new(path)
                .file_stem()
                .unwrap()
                .display()
                .to_string();
            format!(
                "sqlite3 {} \".output $PWD/{name}.sql\" .dump",
                word(&config["path"])
            )
        }
        "postgresql" => {
            let compress = config["compress"].as_str();
            let further = compress
                .map(|method| format!("--compress={method} --format=custom "))
                .unwrap_or_default();
            let suffix = match compress.and_then(|method| method.split(':').next()) {
                Some("gzip") => ".gz",
                Some("lz4") => ".lz4",
                Some("zstd") => ".zst",
                _ => "",
            };
            let [host, port, user, password] =
                ["host", "port", "username", "password"].map(|key| word(&config[key]));
            format!(
                "PGPASSWORD={password} pg_dump --host={host} --port={port} --username={user} {further}{args} {database} \
                 -f {database}.sql{suffix}"
            )
        }
        // The test puts it there.
        _ => format!("cp \"$TMPDIR/made\" {database}.sql"),
    };
    let script = word(&config["after_script"]);
    writeln!(steps, "mkdir -p {directory} && cd {directory} || exit 1").unwrap();
    writeln!(steps, "{command} || fail \"dump failed\"\ncd \"$work\"").unwrap();
    writeln!(steps, "sh -c {script} >\"$TMPDIR/after\" 2>&1 || fail \"Run dump after_script failed: `cat \"$TMPDIR/after\"`\"").unwrap();
}

/// Adds the archive: packed with the files, encrypted and split.
fn pack(steps: &mut String, model: &Value) {
    if let Some(archive) = model["archive"].as_object() {
        let words = |key: &str| {
            archive
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(word)
        };
        let excludes = words("excludes").fold(String::new(), |all, it| all + " --exclude=" + &it);
        let includes = words("includes").fold(String::new(), |all, it| all + " " + &it);
        writeln!(steps, "tar --ignore-failed-read -cPf \"$MODEL/archive.tar\"{excludes}{includes} || fail 'tar failed'").unwrap();
    }
    let extension = match model["compress_with"]["type"].as_str().unwrap() {
        "gz" | "tgz" | "taz" | "tar.gz" => ".tar.gz",
        "Z" | "taZ" | "tar.Z" => ".tar.Z",
        "bz2" | "tbz" | "tbz2" | "tar.bz2" => ".tar.bz2",
        "lz" | "tar.lz" => ".tar.lz",
        "lzma" | "tlz" | "tar.lzma" => ".tar.lzma",
        "lzo" | "tar.lzo" => ".tar.lzo",
        "xz" | "txz" | "tar.xz" => ".tar.xz",
        "zst" | "tzst" | "tar.zst" => ".tar.zst",
        _ => ".tar",
    };
    // Only the format's variable, not the time.
    let format = model["compress_with"]["filename_format"]
        .as_str()
        .unwrap()
        .replace("${ARCHIVE_ID}", "'\"$ARCHIVE_ID\"'");
    writeln!(steps, "name='{format}' stored='{format}'{extension}").unwrap();
    writeln!(
        steps,
        "tar -a -cf \"$stored\" \"$MODEL\" || fail 'tar failed'"
    )
    .unwrap();
    if let Some(encryption) = model["encrypt_with"].as_object() {
        let cipher = encryption
            .get("chiper")
            .map_or_else(|| "aes-256-cbc".to_owned(), word);
        let mut options = String::new();
        for (key, default) in [("base64", false), ("salt", true)] {
            if encryption
                .get(key)
                .and_then(Value::as_bool)
                .unwrap_or(default)
            {
                write!(options, " -{key}").unwrap();
            }
        }
        let args = encryption
            .get("args")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let password = word(&encryption["password"]);
        writeln!(steps, "openssl {cipher}{options} {args} -k {password} -in \"$stored\" -out \"$stored.enc\" || fail 'OpenSSL encrypt failed'").unwrap();
        writeln!(steps, "stored=$stored.enc").unwrap();
    }
    if let Some(split) = model["split_with"].as_object() {
        let numeric = if split["numeric_suffixes"] == true {
            " --numeric-suffixes"
        } else {
            ""
        };
        let [size, length] = [&split["chunk_size"], &split["suffix_length"]].map(word);
        writeln!(steps, "mkdir \"$name\" && split -b {size} -a {length}{numeric} \"$stored\" \"$name/$stored-\" || fail 'split failed'").unwrap();
        writeln!(steps, "stored=$name").unwrap();
    }
}
