//! The command `dev`: starts or uses a control plane, runs the host in this process, applies examples and shows their
//! progress.
//!
//! The host is the one of [`run`](mod@innkeeper_server::run): `dev` only displays it.
//!
//! At the end, the host drains, then the control plane stops, then its directory is removed.

mod controlplane;
mod examples;
mod existing;
mod parents;
mod project;
mod reload;
mod show;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use innkeeper_command::{Exit, Failure, OrFail as _, runtime};
use innkeeper_plugin_controller::resource::file_of_grants;
use innkeeper_reconcile::Shared;
use innkeeper_server::{
    ConnectionArgs, RunArgs,
    run::{self, Shutdown, StatusRegistry},
};
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::config::DevArgs;
use controlplane::ControlPlane;
use parents::Row;
use project::Project;
use reload::{Consent, Reload};
use show::Show;

const HOST: &str = "the host ended";

/// Interval of checks for loaded plugins and changed parents; short enough to look live.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Runs `dev` until a signal arrives, or with `--once` until all parents are Ready.
/// Blocks the calling thread and creates the runtime of all tasks.
pub fn run(args: &DevArgs) -> Result<(), Failure> {
    runtime::block_on_all_threads(async {
        let stop = Shutdown::default();
        let signals =
            run::listen(stop.clone()).or_fail(Exit::Failure, "failed to listen for signals")?;
        tokio::select! {
            result = dev(args, stop) => result,
            never = signals => match never {},
        }
    })
}

async fn dev(args: &DevArgs, stop: Shutdown) -> Result<(), Failure> {
    // From the start, so --timeout includes the control plane and the first build.
    let deadline = Instant::now() + args.timeout;
    // First, so that a mistake in a file is reported before the control plane starts.
    let examples = examples::read(&args.examples, args.examples_namespace())?;
    let project = args
        .project()
        .map(|directory| Project::open(args, directory))
        .transpose()?
        .map(Arc::new);
    let mut host = args.host();
    let mut show = Show::new();
    let program = args.controlplane();
    let control_plane = match &program {
        None => None,
        Some(program) => {
            let starting = show.step("starting the control plane")?;
            let mut control_plane = ControlPlane::start(program, args.dir.as_deref(), args.keep)?;
            tokio::select! {
                ready = control_plane.wait_ready() => ready?,
                () = stop.first() => {
                    // Even with --keep: it is not usable yet.
                    control_plane.stop().await;
                    return stopped(args.once);
                }
            }
            host.cluster.connection = ConnectionArgs {
                kubeconfig: Some(control_plane.kubeconfig()),
                context: None,
            };
            show.done(starting)?;
            Some(control_plane)
        }
    };
    let session = DevSession {
        examples,
        once: args.once,
        deadline,
        timeout: args.timeout,
        stop: stop.clone(),
        kubeconfig: host.cluster.connection.kubeconfig.clone(),
        control_plane: control_plane.as_ref(),
        granted: host.plugins.grants().into_keys().collect(),
        project,
        consent: Consent {
            ask: args.ask,
            // Nothing is at risk in a control plane that `dev` started.
            ask_for_deletes: control_plane.is_none() && !args.yes,
        },
    };
    if control_plane.is_none() {
        let cluster = existing::check_no_host(&host).await?;
        show.say(&format!("using the cluster {cluster}"))?;
    }
    let result = run_host(host, &session, &mut show).await;
    if let Some(control_plane) = control_plane {
        debug!("stopping the control plane");
        if let Some(message) = control_plane.end().await {
            show.say(&message)?;
        }
    }
    result
}

/// Runs the host and shows the progress until the display ends, then drains the host.
async fn run_host(args: RunArgs, session: &DevSession<'_>, show: &mut Show) -> Result<(), Failure> {
    let status = Arc::<StatusRegistry>::default();
    let plugins = args.plugins.files().len();
    let stop = session.stop.clone();
    let mut host = Box::pin(run::serve_until(args, stop, Arc::clone(&status)));
    let watched = tokio::select! {
        result = &mut host => {
            result.or_fail_by(Failure::exit, HOST)?;
            // Without an error, only a signal ends the host.
            return stopped(session.once);
        }
        result = session.watch(&status, plugins, show) => result,
    };
    // The caller stops the control plane only after this drain, whose passes still write.
    session.stop.request();
    let drained = host.await.or_fail_by(Failure::exit, HOST);
    watched.and(drained)
}

/// Returns the result after a signal: success, except with `--once`, which waits for Ready parents.
fn stopped(once: bool) -> Result<(), Failure> {
    if once {
        let message = "stopped before all parents were Ready";
        return Err(Failure::new(Exit::Failure, message));
    }
    Ok(())
}

/// Displays the host's progress until a deadline.
struct DevSession<'a> {
    examples: Vec<examples::Example>,
    once: bool,
    deadline: Instant,
    timeout: Duration,
    stop: Shutdown,
    kubeconfig: Option<PathBuf>,
    control_plane: Option<&'a ControlPlane>,
    /// Plugins with grants from the user.
    granted: BTreeSet<String>,
    /// The crate under development; none with plugin files.
    project: Option<Arc<Project>>,
    consent: Consent,
}

impl DevSession<'_> {
    async fn watch(
        &self,
        status: &StatusRegistry,
        plugins: usize,
        show: &mut Show,
    ) -> Result<(), Failure> {
        // From files, or one from the crate.
        let plugins = plugins.max(usize::from(self.project.is_some()));
        let mut reload = match &self.project {
            None => {
                self.wait_loaded(status, plugins, show).await?;
                None
            }
            Some(project) => Some(self.start(project, status, show).await?),
        };
        // Only there do plugins get everything that they request.
        if self.control_plane.is_some() {
            self.show_grants(status, show)?;
        }
        let step = show.step("applying the examples")?;
        examples::apply(status, &self.examples).await?;
        show.done(step)?;
        let parents = loop {
            let rows = parents::rows(status, &self.examples).await;
            show.parents(&rows)?;
            show.faults(parents::faults(status))?;
            // Otherwise an unfinished list would look like one without parents.
            let unread = parents::unread(status);
            let all_ready = is_loaded(status, plugins) && rows.iter().all(Row::is_ready);
            if all_ready && (!self.once || unread.is_empty()) {
                break rows;
            }
            if self.once && Instant::now() >= self.deadline {
                let missing: Vec<String> = rows
                    .iter()
                    .filter(|row| !row.is_ready())
                    .map(ToString::to_string)
                    .chain(unread)
                    .collect();
                return Err(self.not_ready(missing.join("; ")));
            }
            self.pause(reload.as_mut(), status, show).await?;
        };
        show.all_ready(&parents)?;
        if self.once {
            return Ok(());
        }
        show.usage(
            self.kubeconfig.as_deref(),
            self.control_plane.map(ControlPlane::program),
            &parents,
        )?;
        if let Some(control_plane) = self.control_plane {
            control_plane.restart_controller_manager().await;
        }
        // Shows changes until the host is stopped.
        loop {
            show.parents(&parents::rows(status, &[]).await)?;
            show.faults(parents::faults(status))?;
            self.pause(reload.as_mut(), status, show).await?;
        }
    }

    /// Waits for plugin files.
    async fn wait_loaded(
        &self,
        status: &StatusRegistry,
        plugins: usize,
        show: &Show,
    ) -> Result<(), Failure> {
        let step = show.step("loading plugins")?;
        while !is_loaded(status, plugins) {
            if self.once && Instant::now() >= self.deadline {
                return Err(self.not_ready("not all plugins are loaded; see the log".to_owned()));
            }
            sleep(POLL_INTERVAL).await;
        }
        show.done(step)
    }

    /// Starts the crate's plugin, and waits until its first revision is active.
    async fn start(
        &self,
        project: &Arc<Project>,
        status: &StatusRegistry,
        show: &mut Show,
    ) -> Result<Reload, Failure> {
        let step = show.step("starting the host")?;
        let shared = &shared(status).await;
        reload::install(shared).await?;
        show.done(step)?;
        let mut reload = Reload::new(Arc::clone(project), self.consent);
        while !reload.step(shared, show).await? {
            if self.once && Instant::now() >= self.deadline {
                return Err(self.not_ready("the plugin is not active; see above".to_owned()));
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(reload)
    }

    /// Waits for the next poll, and swaps the crate's plugin after a change.
    async fn pause(
        &self,
        reload: Option<&mut Reload>,
        status: &StatusRegistry,
        show: &mut Show,
    ) -> Result<(), Failure> {
        if let Some((reload, shared)) = reload.zip(status.shared()) {
            reload.follow(&shared, show).await?;
        }
        sleep(POLL_INTERVAL).await;
        Ok(())
    }

    /// Shows the grants of plugins without grants from the user.
    fn show_grants(&self, status: &StatusRegistry, show: &Show) -> Result<(), Failure> {
        for served in status.active() {
            let name = served.name.as_str();
            if let Some(reconciler) = served.reconcilers.first()
                && !self.granted.contains(name)
            {
                show.grants(name, &file_of_grants(&reconciler.revision().grants))?;
            }
        }
        Ok(())
    }

    fn not_ready(&self, missing: String) -> Failure {
        let waited = self.timeout.as_secs();
        let message = format!("not Ready after {waited} s: {missing}");
        Failure::new(Exit::Finding, message)
    }
}

/// Waits until the host has connected to the cluster.
async fn shared(status: &StatusRegistry) -> Arc<Shared> {
    loop {
        match status.shared() {
            Some(shared) => return shared,
            None => sleep(POLL_INTERVAL).await,
        }
    }
}

/// Returns true if this many plugins are loaded. Plugins that cannot be served count too: an example that needs one fails.
fn is_loaded(status: &StatusRegistry, plugins: usize) -> bool {
    status.active().len() + status.inactive_count() >= plugins
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    // Absolute, because the user pastes it elsewhere. Only an empty path has no absolute form.
    let text = std::path::absolute(path)
        .unwrap_or_else(|_| path.to_owned())
        .display()
        .to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_loaded_before_the_first_plugin() {
        assert!(!is_loaded(&StatusRegistry::default(), 1));
        assert!(is_loaded(&StatusRegistry::default(), 0));
    }

    #[test]
    fn quotes_paths_with_characters_special_to_a_shell() {
        for (path, expected) in [
            ("/tmp/a-1.b", "/tmp/a-1.b"),
            ("/tmp/a b", "'/tmp/a b'"),
            ("/it's", r"'/it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(Path::new(path)), expected);
        }
    }
}
