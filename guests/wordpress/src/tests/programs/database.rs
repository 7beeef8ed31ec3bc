//! The database's first start, probes and user, with MariaDB and, in a full run, with MySQL.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Child as Process,
    thread::sleep,
    time::{Duration, Instant},
};

use super::{Container, is_full, kill, moments};

/// Replaces the entrypoint: creates the data, then the user, and trusts existing data.
const MARIADB: &str = r#"#!/bin/sh
set -eu
if ! [ -d /var/lib/mysql/mysql ]; then
  mariadb-install-db --auth-root-authentication-method=normal --skip-test-db >/dev/null
  "$1" --skip-networking --socket=/run/mysqld/first &
  until mariadb -u root --socket=/run/mysqld/first -e 'SELECT 1' >/dev/null 2>&1; do sleep 0.1; done
  sleep 0.5
  mariadb -u root --socket=/run/mysqld/first -e "CREATE DATABASE \`$MYSQL_DATABASE\`"
  sleep 0.5
  mariadb -u root --socket=/run/mysqld/first -e "CREATE USER '$MYSQL_USER'@'%' IDENTIFIED BY '$MYSQL_PASSWORD';
    GRANT ALL ON \`$MYSQL_DATABASE\`.* TO '$MYSQL_USER'@'%'"
  mariadb-admin -u root --socket=/run/mysqld/first shutdown
  wait
fi
exec "$@"
"#;

/// The same for MySQL, whose programs have other names.
const MYSQL: &str = r#"#!/bin/sh
set -eu
if ! [ -d /var/lib/mysql/mysql ]; then
  "$1" --initialize-insecure
  "$1" --skip-networking --mysqlx=0 --socket=/run/mysqld/first &
  until mysql -u root --socket=/run/mysqld/first -e 'SELECT 1' >/dev/null 2>&1; do sleep 0.1; done
  sleep 0.5
  mysql -u root --socket=/run/mysqld/first -e "CREATE DATABASE \`$MYSQL_DATABASE\`"
  sleep 0.5
  mysql -u root --socket=/run/mysqld/first -e "CREATE USER '$MYSQL_USER'@'%' IDENTIFIED BY '$MYSQL_PASSWORD';
    GRANT ALL ON \`$MYSQL_DATABASE\`.* TO '$MYSQL_USER'@'%'"
  mysqladmin -u root --socket=/run/mysqld/first shutdown
  wait
fi
exec "$@"
"#;

const ACCESS: [(&str, &str); 4] = [
    ("MYSQL_ROOT_PASSWORD", "root"),
    ("MYSQL_USER", "wordpress"),
    ("MYSQL_PASSWORD", "a \"b#c$d`e"),
    ("MYSQL_DATABASE", "wordpress"),
];

/// A database server, and what the image does at a first start.
struct Server {
    image: Option<PathBuf>,
    entrypoint: &'static str,
    /// An entrypoint that leaves data without user and schema, like an interrupted first start.
    without_user: &'static str,
}

impl Server {
    /// A database container; `None` where tests cannot create namespaces.
    fn container(&self) -> Option<Container> {
        let mut container = Container::new("db", "containers", 999)?;
        container.image.clone_from(&self.image);
        container.program("docker-entrypoint.sh", self.entrypoint);
        Some(container)
    }
}

/// MariaDB, and MySQL in a full run.
fn servers() -> impl Iterator<Item = Server> {
    let mariadb = Server {
        image: None,
        entrypoint: MARIADB,
        without_user: "#!/bin/sh\nmariadb-install-db --skip-test-db >/dev/null\nexec \"$@\"",
    };
    let mysql = is_full().then(mysql);
    [mariadb].into_iter().chain(mysql)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the path that tests/environment sets"
)]
fn mysql() -> Server {
    let image = std::env::var_os("INNKEEPER_MYSQL").expect("tests/environment was read");
    let image = PathBuf::from(image);
    assert!(
        image.join("usr/sbin/mysqld").exists(),
        "MySQL is missing: run ./tests/setup --only mysql"
    );
    Server {
        image: Some(image),
        entrypoint: MYSQL,
        without_user: "#!/bin/sh\n\"$1\" --initialize-insecure\nexec \"$@\"",
    }
}

/// Waits until the startup probe succeeds.
fn is_ready(container: &Container, process: &mut Process, seconds: u64) -> bool {
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end && process.try_wait().unwrap().is_none() {
        if container.probe("startupProbe", process, &ACCESS) {
            return true;
        }
        sleep(Duration::from_millis(200));
    }
    false
}

#[test]
fn a_first_start_of_the_database_that_was_cut_off_begins_again() {
    for server in servers() {
        if let Some(container) = server.container() {
            check_cut_off_starts(&container);
        }
    }
}

fn check_cut_off_starts(container: &Container) {
    let data = container.root.join("data-mysql");
    let first = container.root.join("data-first-start");
    let log = || fs::read_to_string(container.root.join("errors")).unwrap();
    let is_empty = |directory: &Path| fs::read_dir(directory).unwrap().next().is_none();
    let start = Instant::now();
    let mut process = container.start(&ACCESS, &[]);
    assert!(is_ready(container, &mut process, 60), "{}", log());
    let time = start.elapsed();
    for probe in ["readinessProbe", "livenessProbe"] {
        assert!(container.probe(probe, &process, &ACCESS), "{probe}");
    }
    kill(process);
    assert!(is_empty(&first));
    for moment in 0..moments() {
        container.empty();
        let process = container.start(&ACCESS, &[]);
        sleep(time * (2 * moment + 1) / (2 * moments()));
        kill(process);
        let mut process = container.start(&ACCESS, &[]);
        assert!(
            is_ready(container, &mut process, 60),
            "moment {moment}: {}",
            log()
        );
        kill(process);
        assert!(is_empty(&first));
    }
    // Data from a completed start is never touched.
    fs::write(data.join("mark"), "kept").unwrap();
    let mut process = container.start(&ACCESS, &[]);
    assert!(is_ready(container, &mut process, 60), "{}", log());
    kill(process);
    assert_eq!(fs::read_to_string(data.join("mark")).unwrap(), "kept");
}

#[test]
fn a_database_without_its_user_is_not_ready() {
    for server in servers() {
        if let Some(container) = server.container() {
            check_data_without_user(&server, &container);
        }
    }
}

fn check_data_without_user(server: &Server, container: &Container) {
    // Data from another interrupted first start, without a mark.
    container.program("docker-entrypoint.sh", server.without_user);
    let mut process = container.start(&ACCESS, &[]);
    let data = container.root.join("data-mysql");
    let end = Instant::now() + Duration::from_mins(1);
    while !container.probe("readinessProbe", &process, &ACCESS) && Instant::now() < end {
        sleep(Duration::from_millis(200));
    }
    assert!(!is_ready(container, &mut process, 1));
    kill(process);
    let mark = container.root.join("data-first-start/unfinished");
    assert!(
        mark.exists(),
        "{}",
        fs::read_to_string(container.root.join("errors")).unwrap()
    );
    fs::remove_file(mark).unwrap();
    fs::write(data.join("mark"), "kept").unwrap();
    container.program("docker-entrypoint.sh", server.entrypoint);
    let mut process = container.start(&ACCESS, &[]);
    let end = Instant::now() + Duration::from_mins(2);
    // The ping succeeds, which is why it must not be the only proof.
    while container.termination_message().is_empty()
        || !container.probe("readinessProbe", &process, &ACCESS)
    {
        assert!(Instant::now() < end, "{}", container.termination_message());
        assert!(!is_ready(container, &mut process, 1));
    }
    kill(process);
    assert_eq!(container.termination_message(), "UserMissing\n");
    assert_eq!(fs::read_to_string(data.join("mark")).unwrap(), "kept");
}

#[test]
fn a_password_that_the_image_cannot_set_is_told() {
    for server in servers() {
        let Some(container) = server.container() else {
            return;
        };
        for password in ["it's", r"back\slash"] {
            let access = ACCESS.map(|(name, value)| match name {
                "MYSQL_PASSWORD" => (name, password),
                _ => (name, value),
            });
            container.empty();
            let mut process = container.start(&access, &[]);
            if server.image.is_none() {
                // MariaDB's entrypoint escapes it, this one does not.
                kill(process);
                continue;
            }
            assert!(!process.wait().unwrap().success(), "{password}");
            assert_eq!(container.termination_message(), "UnusablePassword\n");
        }
    }
}
