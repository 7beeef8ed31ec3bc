//! Real database servers, each in a separate directory. A full run installs their packages.

use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::{fs::chown, process::CommandExt as _},
    path::PathBuf,
    process::{Child, Command},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{PASSWORD, Run, database};

/// A server's user: PostgreSQL refuses root. It has a name on every system.
const NOBODY: u32 = 65534;

/// A database server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tests) enum Engine {
    PostgreSql,
    MariaDb,
}

/// A server on loopback. The user `u` has the password [`PASSWORD`].
pub(in crate::tests) struct Server {
    pub(in crate::tests) engine: Engine,
    process: Child,
    pub(in crate::tests) port: u16,
    /// The log path.
    log: String,
}

impl Engine {
    pub(in crate::tests) const ALL: [Self; 2] = [Self::PostgreSql, Self::MariaDb];

    /// Returns the `Database` type.
    pub(in crate::tests) const fn type_(self) -> &'static str {
        match self {
            Self::PostgreSql => "postgresql",
            Self::MariaDb => "mysql",
        }
    }

    /// Returns the path in an archive of the database `shop`, dumped for the `Database` with this name.
    pub(in crate::tests) fn dump_path(self, name: &str) -> String {
        format!("nightly/{}/{name}/shop.sql", self.type_())
    }

    fn program(self, name: &str) -> PathBuf {
        let directories = match self {
            Self::PostgreSql => fs::read_dir("/usr/lib/postgresql")
                .expect("PostgreSQL is installed")
                .map(|entry| entry.unwrap().path().join("bin"))
                .collect(),
            Self::MariaDb => vec![PathBuf::from("/usr/sbin"), PathBuf::from("/usr/bin")],
        };
        directories
            .iter()
            .map(|directory| directory.join(name))
            .find(|path| path.exists())
            .expect("the server is installed")
    }

    /// Creates a server's files; the server's user may read `first_statements`.
    fn initialize(self, run: &Run, data: &str, first_statements: &str) {
        let mut command = match self {
            Self::PostgreSql => {
                fs::write(first_statements, PASSWORD).unwrap();
                let mut command = as_nobody(run, self.program("initdb"));
                command.args(["--auth=scram-sha-256", "--username=u", "--no-sync"]);
                command.args([&format!("--pwfile={first_statements}"), "-D", data]);
                command
            }
            Self::MariaDb => {
                let password = std::str::from_utf8(PASSWORD)
                    .unwrap()
                    .replace('\\', r"\\")
                    .replace('\'', r"\'");
                let user = format!("CREATE USER u@'127.0.0.1' IDENTIFIED BY '{password}';\n");
                fs::write(first_statements, user).unwrap();
                let mut command = as_nobody(run, self.program("mariadb-install-db"));
                command.args(["--no-defaults", "--skip-test-db", "--skip-name-resolve"]);
                command.args(["--auth-root-authentication-method=normal"]);
                command.arg(format!("--datadir={data}"));
                command
            }
        };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn serve(self, run: &Run, data: &str, first_statements: &str, port: u16) -> Command {
        match self {
            Self::PostgreSql => {
                let mut command = as_nobody(run, self.program("postgres"));
                command.args(["-D", data, "-k", "", "-c", "fsync=off"]);
                command.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
                command
            }
            Self::MariaDb => {
                let mut command = as_nobody(run, self.program("mariadbd"));
                command.args(["--no-defaults", "--skip-name-resolve"]);
                command.arg(format!("--datadir={data}"));
                command.arg(format!("--socket={data}/socket"));
                command.arg(format!("--init-file={first_statements}"));
                command.arg(format!("--port={port}"));
                command.args(["--bind-address=127.0.0.1"]);
                command
            }
        }
    }
}

/// Returns a server program. A starting MariaDB deletes the temporary tables of others in the same directory.
fn as_nobody(run: &Run, program: PathBuf) -> Command {
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    command.env("TMPDIR", run.path("temporary"));
    command
}

/// Returns a free port.
pub(in crate::tests) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

impl Server {
    pub(in crate::tests) fn start(run: &Run, engine: Engine) -> Self {
        let data = run.path("data");
        let first_statements = run.path("given");
        let temporary = run.path("temporary");
        for path in [&data, &temporary] {
            fs::create_dir(path).unwrap();
        }
        fs::write(&first_statements, "").unwrap();
        for path in [&data, &temporary, &first_statements] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        engine.initialize(run, &data, &first_statements);
        let port = free_port();
        let log = run.path("server.log");
        let process = engine
            .serve(run, &data, &first_statements, port)
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self {
            engine,
            process,
            port,
            log,
        }
    }

    /// Creates an empty database with all privileges for the user.
    pub(in crate::tests) fn create(&self, name: &str) {
        match self.engine {
            Engine::PostgreSql => self.query("postgres", &format!("CREATE DATABASE {name}")),
            Engine::MariaDb => {
                let sql = format!(
                    "CREATE DATABASE {name}; GRANT ALL PRIVILEGES ON {name}.* TO u@'127.0.0.1'"
                );
                let as_root = ["--no-defaults", "--user=root", "--execute", &sql];
                self.output("mariadb", &as_root, b"")
            }
        };
    }

    /// The rows that the user gets, one a line.
    pub(in crate::tests) fn query(&self, database: &str, sql: &str) -> String {
        match self.engine {
            Engine::PostgreSql => {
                let arguments = ["--username=u", "-Atc", sql, "-d", database];
                self.output("psql", &arguments, PASSWORD)
            }
            Engine::MariaDb => {
                let form = ["--no-defaults", "--batch", "--raw", "--skip-column-names"];
                let arguments = [&form[..], &["--user=u", "--execute", sql, database]].concat();
                self.output("mariadb", &arguments, PASSWORD)
            }
        }
    }

    /// Returns the dump that gobackup makes of a database, with these arguments.
    pub(in crate::tests) fn dump(&self, arguments: &[&str], database: &str) -> String {
        let (program, first) = match self.engine {
            Engine::PostgreSql => ("pg_dump", &["--username=u"][..]),
            Engine::MariaDb => ("mysqldump", &["--no-defaults", "--user=u"][..]),
        };
        let arguments = [first, arguments, &[database]].concat();
        self.output(program, &arguments, PASSWORD)
    }

    /// Returns a client's output, once the server accepts connections.
    pub(in crate::tests) fn output(
        &self,
        program: &str,
        arguments: &[&str],
        password: &[u8],
    ) -> String {
        let deadline = Instant::now() + Duration::from_mins(1);
        let password = std::str::from_utf8(password).unwrap();
        let server = match self.engine {
            Engine::PostgreSql => ["-h", "127.0.0.1", "-p"],
            Engine::MariaDb => ["--protocol=tcp", "--host=127.0.0.1", "--port"],
        };
        // MariaDB clients only accept --no-defaults as the first argument.
        let (first, rest) = arguments.split_at(1);
        loop {
            let output = Command::new(program)
                .args(first)
                .args(server)
                .arg(self.port.to_string())
                .args(rest)
                .env("PGPASSWORD", password)
                .env("MYSQL_PWD", password)
                .output()
                .unwrap();
            if output.status.success() {
                return String::from_utf8(output.stdout).unwrap();
            }
            if Instant::now() > deadline {
                let log = fs::read_to_string(&self.log).unwrap();
                panic!("{output:?}\n{log}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Returns the `Database` with this name, which is also the database's.
    pub(in crate::tests) fn target(&self, name: &str) -> Value {
        let config = json!({
            "database": name, "username": "u", "host": "127.0.0.1", "port": self.port,
        });
        database(name, self.engine.type_(), config)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
