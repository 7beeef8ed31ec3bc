compare() {
  absent=`LC_ALL=C awk '
{ count = $1; sub(/^[0-9]+ /, "") }
FILENAME == ARGV[1] { present[$0] += count; next }
present[$0] < count {
  if (++number < 6) list = list ", " substr($0, 1, 100) (count > 1 ? " (" present[$0] + 0 " of " count ")" : "")
}
{ present[$0] -= count }
END {
  if (number > 5) list = list ", and " number - 5 " more"
  print substr(list, 3)
}' /work/present /work/expected` || fail "$1: failed to compare the restored database with the dump: the image needs awk"
  [ -z "$absent" ] || fail "$1: the dump has more than was restored, $2; missing: $absent"
}
expect_postgresql() {
  LC_ALL=C grep -a -e '^COPY ' -e '^--' -e '^\\\.$' | LC_ALL=C awk '
/^COPY .* FROM stdin;$/ { is_data = 1 }
is_data { if ($0 == "\\.") is_data = 0; next }
sub(/^-- Name: /, "") && is_comment && match($0, /; Type: (TABLE|VIEW|MATERIALIZED VIEW|FOREIGN TABLE|SEQUENCE|INDEX|FUNCTION|PROCEDURE|AGGREGATE|TRIGGER|CONSTRAINT|FK CONSTRAINT); Schema: /) {
  name = substr($0, 1, RSTART - 1)
  type = substr($0, RSTART + 8, RLENGTH - 18)
  schema = substr($0, RSTART + RLENGTH)
  sub(/; Owner: .*/, "", schema)
  if (type ~ /^(FUNCTION|PROCEDURE|AGGREGATE)$/) { type = "FUNCTION"; sub(/\(.*/, "", name) }
  key = type " " schema "." name
  if (type == "FUNCTION" || !(key in known)) print 1, key
  known[key] = 1
}
{ is_comment = /^--/ }' >/work/expected
}
# A server with lower_case_table_names=1 stores lower case, of letters that this awk does not know as well.
folded='function folded(name) { gsub(/[\200-\377]+/, "?", name); return tolower(name) }
'
expect_mysql() {
  LC_ALL=C grep -a -e '^CREATE ' -e '^/\*M*!' -e '^DELIMITER ' -e '^USE ' | LC_ALL=C awk "$folded"'
function name(    text) {
  sub(/^[ \t]*(IF NOT EXISTS )?[ \t]*/, "", line)
  if (!match(line, /^`([^`]|``)*`/)) match(line, /^[^] \t.`(;]+/)
  text = substr(line, 1, RLENGTH)
  line = substr(line, RLENGTH + 1)
  if (sub(/^`/, "", text)) { sub(/`$/, "", text); gsub(/``/, "`", text) }
  return text
}
BEGIN { database = ENVIRON["TARGET"] }
/^DELIMITER / { is_body = $2 != ";"; is_over = 0; next }
is_body && is_over { next }
/^USE / { line = substr($0, 5); database = name(); next }
/^\/\*M?![0-9]* CREATE TABLE / { next }
{
  line = $0
  gsub(/\/\*M?![0-9]*|\*\//, " ", line)
  sub(/DEFINER *= *(`[^`]*`|[^ @]+)(@(`[^`]*`|[^ ]+))?/, "", line)
  number = split(line, word, " ")
  if (!(word[1] == "CREATE" || word[1] == "VIEW" && $1 != "VIEW")) next
  for (at = word[1] == "VIEW" ? 1 : 2; word[at] ~ /^(OR|REPLACE|ALGORITHM=.*|SQL|SECURITY|INVOKER|AGGREGATE)$/ || word[at] == "DEFINER"; at++);
  if (word[at] !~ /^(TABLE|VIEW|SEQUENCE|TRIGGER|PROCEDURE|FUNCTION|EVENT)$/) next
  is_over = 1
  type = word[at] == "SEQUENCE" ? "TABLE" : word[at]
  match(line, "(^|[ \t])" word[at] "[ \t]")
  line = substr(line, RSTART + RLENGTH)
  schema = database
  object = name()
  if (sub(/^\./, "", line)) { schema = object; object = name() }
  key = folded(schema "." object)
  if (key !~ /^(mysql|sys)\./ && !(type " " key in known)) print 1, type, key
  known[type " " key] = 1
}' >/work/expected
}
expect_sqlite() {
  LC_ALL=C awk '
/^(INSERT INTO|CREATE) / {
  sub(/ *(VALUES)?\(.*/, "")
  sub(/^CREATE TABLE IF NOT EXISTS/, "CREATE TABLE")
  sub(/sqlite_master/, "sqlite_schema")
  if (!($0 in count)) names[++number] = $0
  count[$0]++
}
END { for (at = 1; at <= number; at++) print count[names[at]], names[at] }'
}
present_postgresql() {
  psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --tuples-only --no-align "$@" --file=- >/work/present <<'END'
SELECT '1 ' || type || ' ' || translate(nspname || '.' || name, E'\n\r', '  ') FROM (
  SELECT CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'f' THEN 'FOREIGN TABLE'
    WHEN 'S' THEN 'SEQUENCE' WHEN 'i' THEN 'INDEX' WHEN 'I' THEN 'INDEX' ELSE 'TABLE' END, relname::text, relnamespace FROM pg_class
  UNION ALL SELECT 'FUNCTION', split_part(proname, '(', 1), pronamespace FROM pg_proc
  UNION ALL SELECT 'TRIGGER', relname || ' ' || tgname, relnamespace FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid
  UNION ALL SELECT CASE contype WHEN 'f' THEN 'FK CONSTRAINT' ELSE 'CONSTRAINT' END, relname || ' ' || conname, relnamespace
    FROM pg_constraint JOIN pg_class c ON c.oid = conrelid
) o (type, name, namespace) JOIN pg_namespace n ON n.oid = namespace
WHERE nspname !~ '^pg_' AND nspname <> 'information_schema';
END
}
present_mysql() {
  client "$@" --batch --raw --skip-column-names >/work/listed <<'END' || return 1
SET NAMES utf8mb4;
SELECT IF(table_type LIKE '%VIEW', 'VIEW', 'TABLE'), table_schema, table_name FROM information_schema.tables;
SELECT routine_type, routine_schema, routine_name FROM information_schema.routines;
SELECT 'TRIGGER', trigger_schema, trigger_name FROM information_schema.triggers;
SELECT 'EVENT', event_schema, event_name FROM information_schema.events;
END
  LC_ALL=C awk -F '\t' "$folded"'{ print 1, $1, folded($2 "." $3) }' /work/listed >/work/present
}
whole_files() {
  [ -z "`tail -c 1024 "$1" | tr -d '\000'`" ] || fail "the files cannot be restored: their archive is not complete, and nothing was changed"
}
compare_files() {
  export TAR_OPTIONS=--quoting-style=literal
  tar --numeric-owner -tvf "$1" >/work/listed || fail "failed to list the archive with the files"
  # A mount has a directory lost+found that only root may read.
  (cd "$2" && find . -type f -exec stat -c '%s %n' {} + 2>/dev/null) >/work/present
  absent=`LC_ALL=C awk '
function clean(path) {
  gsub(/\/(\.?\/)+/, "/", path)
  sub(/^(\.?\/)+/, "", path)
  return path
}
FILENAME == ARGV[1] {
  if ($1 !~ /^-/ || !match($0, /^[^ ]+ +[^ ]+ +[0-9]+ +[^ ]+ +[^ ]+ /)) next
  size[clean(substr($0, RLENGTH + 1))] = $3 + 0
  next
}
{
  path = clean(substr($0, length($1) + 2))
  # Its application may append to it already.
  if (path in size && size[path] <= $1 + 0) delete size[path]
}
END {
  for (path in size) if (!number++ || path < first) first = path
  if (number) print number " of them, such as " substr(first, 1, 200) ", are missing or too short"
}' /work/listed /work/present` || fail "the files cannot be compared with the archive: the image needs awk"
  [ -z "$absent" ] || fail "the files below $2 differ from the archive: $absent"
}
