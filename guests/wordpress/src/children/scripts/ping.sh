# Succeeds while the server answers, also with a refusal: it needs no password.
admin=mysqladmin
command -v "$admin" >/dev/null || admin=mariadb-admin
exec "$admin" ping -h 127.0.0.1
