redact='
function add(value) {
  # A shorter one would be in many words.
  if (length(value) > 3 && !(value in known)) { known[value] = 1; values[++count] = value }
}
function escaped(value, space,    i, c, text) {
  text = ""
  for (i = 1; i <= length(value); i++) {
    c = substr(value, i, 1)
    if (space == "") { text = text (c == "\"" || c == "\\" ? "\\" c : c) }
    else if (c == " ") { text = text space }
    else { text = text (index(plain, c) ? c : percent[c]) }
  }
  return text
}
function secret(value,    parts, i, number) {
  number = split(value, parts, "\n")
  for (i = 1; i <= number; i++) {
    gsub(/^[ \t]+|[ \t\r]+$/, "", parts[i])
    if (number > 1 && length(parts[i]) > 7) add_forms(parts[i])
  }
  sub(/\n+$/, "", value)
  add_forms(value)
}
function add_forms(value) {
  add(value)
  add(escaped(value, ""))
  add(escaped(value, "+"))
  add(escaped(value, "%20"))
  if (match(value, /^https?:\/\/[^\/]+\//) && length(value) - RLENGTH > 7) add(substr(value, RLENGTH))
}
function is_retention(line) {
  # The first run, or an archive that is gone already.
  if (line ~ /HTTP 404|[Nn]ot exist|[Nn]o such file|NoSuchKey|[Nn]ot found$/) return 0
  return line ~ /Remove .* failed: |state not found \(HTTP |Failed to fetch remote cycler state|Failed to unmarshal remote cycler state|Failed to save cycler state|Failed to write state|Failed to create temp directory|cycler.json failed|Skip save cycler.json/
}
function redacted(line, value,    at, text) {
  text = ""
  while ((at = index(line, value)) > 0) {
    text = text substr(line, 1, at - 1) "***"
    line = substr(line, at + length(value))
  }
  return text line
}
BEGIN {
  plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~"
  for (i = 1; i < 256; i++) percent[sprintf("%c", i)] = sprintf("%%%02X", i)
  for (i = 128; i < 192; i++) following = following sprintf("%c", i)
  own = " HOME TMPDIR GOBACKUP_DIR DOLLAR MODEL STORAGES SECRETS ARCHIVE_ID POD_UID PATH PWD OLDPWD SHLVL HOSTNAME "
  number = split("B kB MB GB TB PB EB", names, " ")
  factor = 1
  for (i = 1; i <= number; i++) { bytes[names[i]] = factor; factor *= 1000 }
  number = split(ENVIRON["SECRETS"], names, " ")
  for (i = 1; i <= number; i++) {
    name = names[i]
    if (name ~ /^\//) { while ((getline line < name) > 0) if (length(line) > 7) secret(line) }
    else if (name ~ /\*$/) {
      prefix = substr(name, 1, length(name) - 1)
      for (it in ENVIRON) if (index(it, prefix) == 1 && !index(own, " " it " ")) secret(ENVIRON[it])
    }
    else secret(ENVIRON[name])
  }
  for (i = 2; i <= count; i++) {
    value = values[i]
    for (j = i - 1; j > 0 && length(values[j]) < length(value); j--) values[j + 1] = values[j]
    values[j + 1] = value
  }
}
/=> Storage / {
  if (sum > size) size = sum
  sum = 0
}
/cycler state to remote storage/ {
  sum -= last
  last = 0
}
match($0, /-> Uploading \([0-9.]+ [kMGTPE]?B\)/) {
  split(substr($0, RSTART + 14, RLENGTH - 15), part, " ")
  last = part[1] * bytes[part[2]]
  sum += last
}
{
  line = $0
  for (i = 1; i <= count; i++) line = redacted(line, values[i])
  print line
  fflush()
  if (retention == "" && is_retention(line)) {
    retention = line
    gsub(/[^ -~]/, "?", retention)
    retention = substr(retention, 1, 300)
  }
  end = end line "\n"
  if (length(end) > 3584) end = substr(end, length(end) - 3583)
}
END {
  while (end != "" && index(following, substr(end, 1, 1))) end = substr(end, 2)
  printf "%s", end >"/dev/termination-log"
  if (retention != "") {
    print "gobackup did not apply keep: " retention >"/dev/termination-log"
    printf "%s", escaped(retention, "") >(ENVIRON["HOME"] "/.retention")
  }
  if (sum > size) size = sum
  if (size) printf "%.0f", size >(ENVIRON["HOME"] "/.size")
}
'
