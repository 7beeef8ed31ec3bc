watch() {
  # A script of the user may print such a line before gobackup does.
  work=
  while IFS= read -r line || [ -n "$line" ]; do
    printf '%s\n' "$line"
    case $line in
    *"WorkDir: "*) work=${line#*WorkDir: } ;;
    *"=> Storage | sftp"*)
      find "${work%/*}" -type f ! -path "$work/*" -exec stat -c '%s %n' {} + >"$HOME/.files" 2>/dev/null
      ;;
    esac
  done
}
size_of() {
  [ -s "$HOME/.files" ] || { echo null; return; }
  FILE=$1 awk '{
    length_ = split($0, part, "/")
    if (part[length_] == ENVIRON["FILE"] || part[length_ - 1] == ENVIRON["FILE"]) sum += $1
  }
  END { if (sum) printf "%.0f", sum; else printf "null" }' "$HOME/.files"
}
umask 002
ARCHIVE_ID=`printf '%s' "$POD_UID" | tr -d - | tr 0123456789abcdef bcdfghjkqrstvwxz | cut -c 1-16`
export ARCHIVE_ID
started="$GOBACKUP_DIR/.started.$ARCHIVE_ID"
trap 'rm -f "$started"' EXIT
mkdir -p "$GOBACKUP_DIR/cycler" && touch "$started" || fail "the state volume is not writable"
rm -f "$HOME/.exit" "$HOME/.size" "$HOME/.retention" "$HOME/.files"
begin=`date +%s`
{
  gobackup perform --config /etc/gobackup/gobackup.yml 2>&1
  echo $? >"$HOME/.exit"
} | watch | LC_ALL=C awk "$redact" || fail "the log filter failed: the image needs awk"
code=`cat "$HOME/.exit"`
[ "${code:-1}" = 0 ] || exit "${code:-1}"
end=`date +%s`
size=null
[ ! -s "$HOME/.size" ] || size=`cat "$HOME/.size"`
artifacts=""
for key in $STORAGES; do
  state="$GOBACKUP_DIR/cycler/${MODEL}_$key.json"
  if [ ! -f "$state" ] || [ `stat -c %Y "$state"` -lt `stat -c %Y "$started"` ]; then
    fail "gobackup stored nothing in $key"
  fi
  files=`grep -o '"file_key" *: *"[^"]*"' "$state" | cut -d '"' -f 4`
  file=`printf '%s\n' "$files" | grep -F -e "$ARCHIVE_ID" | tail -n 1`
  [ -n "$file" ] || file=`printf '%s\n' "$files" | tail -n 1`
  artifacts="$artifacts${artifacts:+,}{\"storage\":\"$key\",\"file\":\"$file\"}"
  [ "$size" != null ] || size=`size_of "$file"`
  kept=`directory "$key"`/$file
  [ "$kept" = "/$file" ] || [ ! -f "$kept" ] || size=`stat -c %s "$kept"`
done
seconds=`expr "$end" - "$begin"`
retention=
[ ! -s "$HOME/.retention" ] || retention=`cat "$HOME/.retention"`
printf '{"artifacts":[%s],"bytes":%s,"retention":"%s","seconds":%s}' "$artifacts" "$size" "$retention" "$seconds" >/dev/termination-log
