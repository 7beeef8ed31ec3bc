# Succeeds when the site's user can use the site's schema. Over TCP, because the server of a first start
# listens on a socket only.
first=/var/lib/first-start/unfinished
client=mysql
command -v "$client" >/dev/null || client=mariadb
if MYSQL_PWD=$MYSQL_PASSWORD "$client" -h 127.0.0.1 -u "$MYSQL_USER" -e 'SELECT 1' "$MYSQL_DATABASE" >/dev/null; then
  printf '' 2>/dev/null >/dev/termination-log
  [ -e "$first" ] || exit 0
  # On the disk before any data of the site: a file that came back would cost them.
  rm "$first" && sync
  exit
fi
admin=mysqladmin
command -v "$admin" >/dev/null || admin=mariadb-admin
if "$admin" ping -h 127.0.0.1 >/dev/null 2>&1; then
  echo UserMissing >/dev/termination-log
fi
exit 1
