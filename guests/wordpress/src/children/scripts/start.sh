# Starts the database, and begins a first start that was cut off again: the entrypoint of the image would
# take the half-made data for a database. The file marks a first start from before it begins until the
# site's user has logged in; data without it are never touched.
set -eu
data=/var/lib/mysql
first=/var/lib/first-start/unfinished

fail() {
  echo "$1: $2" >&2
  echo "$1" >/dev/termination-log
  exit 1
}

is_empty() {
  for file in "$data"/* "$data"/.[!.]* "$data"/..?*; do
    if [ -e "$file" ] || [ -L "$file" ]; then return 1; fi
  done
}

server=mysqld
command -v "$server" >/dev/null || server=mariadbd
for entrypoint in docker-entrypoint.sh /docker-entrypoint.sh /entrypoint.sh none; do
  if command -v "$entrypoint" >/dev/null; then break; fi
done
if [ "$entrypoint" = none ] || ! command -v "$server" >/dev/null; then
  fail UnsupportedImage "the image lacks docker-entrypoint.sh, or mysqld and mariadbd"
fi

if [ -e "$first" ]; then
  echo "the first start was cut off: it begins again with an empty directory"
  rm -rf "$data"/* "$data"/.[!.]* "$data"/..?*
elif is_empty; then
  touch "$first"
  sync
fi
if [ -e "$first" ] && ! "$server" --version | grep -qi mariadb; then
  case "$MYSQL_ROOT_PASSWORD$MYSQL_USER$MYSQL_PASSWORD" in
    *[\'\\]*) fail UnusablePassword "the image cannot set a password with an apostrophe or a backslash" ;;
  esac
fi
exec "$entrypoint" "$server"
