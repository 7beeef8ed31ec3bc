empty_postgresql() {
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
