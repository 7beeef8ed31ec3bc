//! Runs a plan: executes the steps in order, and waits where a step requires it. An unexpected
//! observation is a violation and ends the plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use innkeeper_tests::{HostOptions, Write, process::is_full, user::Kind};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    foreign_edits,
    normal::{self, differences},
    oracles::{self, Evidence},
    plan::{self, Desired, DesiredParents, FRESH, KINDS, LEADER_ROW, Parent, Plan, Step},
    test_cluster::{RunningController, Subject, TestCluster},
};
use crate::{relay::Moment, stage::is_synced};

/// Polling interval.
pub(super) const INTERVAL: Duration = Duration::from_millis(50);

/// Time limit for a host to reach the write at which it is killed, if it makes that many.
const KILL: Duration = Duration::from_secs(4);

/// A plan's result.
pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    /// The round in which a violation ended the plan.
    pub(crate) round: Option<usize>,
    pub(crate) took: Duration,
    /// The slowest step.
    pub(crate) slowest: String,
}

/// A running plan.
pub(super) struct Run<'a> {
    pub(super) cluster: &'a TestCluster,
    pub(super) plan: &'a Plan,
    pub(super) namespace: String,
    subject: Subject,
    controller: RunningController,
    /// The host that takes over if the first one loses the lease.
    standby: Option<RunningController>,
    /// True if the host has resource limits that may keep it from working.
    is_limited: bool,
    patience: Duration,
    desired_parents: DesiredParents,
    /// Foreign objects as they were created, by parent.
    pub(super) foreign: BTreeMap<Parent, Value>,
    /// The server for a webhook that does not answer.
    pub(super) silent: Option<TcpListener>,
    pub(super) evidence: Evidence,
}

/// Runs a plan; the cluster must converge within `patience` after each fault.
pub(crate) fn run(
    cluster: &TestCluster,
    plan: &Plan,
    subject: Subject,
    patience: Duration,
) -> Outcome {
    let begun = Instant::now();
    let mut violations = Vec::new();
    // The reference states are recorded before the first fault.
    cluster.desired_state(subject, &BTreeMap::new());
    let namespace = cluster.stage.namespace("plan");
    let marks = cluster
        .audits()
        .map(|audit| audit.mark().unwrap_or_default());
    let options = options(cluster, plan, "a");
    let controller = RunningController::start(subject, cluster.relay.kubeconfig.clone(), &options);
    let mut run = Run {
        cluster,
        plan,
        namespace,
        subject,
        controller: controller.expect("the controller starts"),
        standby: None,
        is_limited: false,
        patience,
        desired_parents: DesiredParents::default(),
        foreign: BTreeMap::new(),
        silent: None,
        evidence: Evidence::default(),
    };
    drop(cluster.relay.seen());
    let (round, slowest) = run.follow(&mut violations);
    cluster.relay.clear();
    if !violations.is_empty() {
        run.end_faults();
    }
    if violations.is_empty()
        && let Err(violation) = run.settle(marks)
    {
        violations.push(format!("{violation:#}"));
    }
    if subject == Subject::Host && violations.is_empty() {
        match oracles::judge(&mut run, marks) {
            Ok(more) => violations.extend(more),
            Err(error) => violations.push(format!("no verdict: {error:#}")),
        }
    }
    if !violations.is_empty() {
        let log = run.controller.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(40)..].join("\n    ");
        violations.push(format!("the log ends with\n    {last}"));
    }
    for controller in [Some(&mut run.controller), run.standby.as_mut()]
        .into_iter()
        .flatten()
    {
        if let Some(process) = controller.process() {
            drop(process.kill());
        }
    }
    let parents: Vec<Parent> = run.desired_parents.now.keys().copied().collect();
    cluster.delete_parents(&run.namespace, parents.into_iter());
    Outcome {
        violations,
        round,
        took: begun.elapsed(),
        slowest,
    }
}

/// Options for a plan's host.
fn options(cluster: &TestCluster, plan: &Plan, identity: &str) -> HostOptions {
    let mut options = cluster.stage.options.clone();
    if plan.name.row == LEADER_ROW {
        let arguments =
            "--leader-elect --lease-duration 6 --lease-renew-deadline 4 --lease-retry 1"
                .split(' ')
                .chain(["--lease-identity", identity]);
        options.arguments = arguments.map(str::to_owned).collect();
    }
    options
}

impl Run<'_> {
    pub(super) fn kind<'b>(&'b self, (api_version, kind): (&'b str, &'b str)) -> Kind<'b> {
        Kind::new(api_version, kind, &self.namespace)
    }

    pub(super) fn log(&self) -> String {
        self.controller.log()
    }

    pub(super) fn pid(&mut self) -> Result<i32> {
        let process = self
            .controller
            .process()
            .context("the naive controller is no process")?;
        Ok(process.pid()?.as_raw_nonzero().get())
    }

    /// Executes the steps up to the first violation; returns the round with the violation and the
    /// slowest step.
    fn follow(&mut self, violations: &mut Vec<String>) -> (Option<usize>, String) {
        let mut slowest = (Duration::ZERO, String::new());
        let plan = self.plan;
        for (number, round) in plan.rounds.iter().enumerate() {
            for step in round {
                let begun = Instant::now();
                let result = self.step(step);
                let took = begun.elapsed();
                if took > slowest.0 {
                    slowest = (took, format!("{took:.1?} {step:?} of round {number}"));
                }
                if let Err(violation) = result {
                    violations.push(format!("{violation:#}, at {step:?} of round {number}"));
                    return (Some(number), slowest.1);
                }
            }
        }
        (None, slowest.1)
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        self.is_alive()?;
        self.desired_parents.take(step);
        self.evidence.take(step);
        match step {
            Step::Put(parent, desired) => self.put(*parent, &parent.object(*desired))?,
            Step::Crowd(count) => {
                for (parent, desired) in plan::crowd(*count) {
                    self.put(parent, &parent.object(desired))?;
                }
            }
            Step::Delete(parent, propagation) => self.delete(*parent, *propagation)?,
            Step::Sweep(parent) => self.sweep(*parent)?,
            Step::EditChild(parent, edit) => foreign_edits::edit_child(self, *parent, *edit)?,
            Step::OccupyName(parent) => self.occupy_name(*parent)?,
            Step::FreeName(parent) => self.free_name(*parent)?,
            Step::Misbehave(parent, behaviour) => {
                let mut object = parent.object(Desired {
                    size: 1,
                    extra: true,
                });
                object["spec"]["behaviour"] = json!(behaviour);
                self.put(*parent, &object)?;
            }
            Step::Deny(refusal, plural) => self.deny(*refusal, plural)?,
            Step::Allow => self.allow()?,
            Step::DeleteCrd => self.delete_crd()?,
            Step::ApplyCrd => self.apply_crd()?,
            Step::Rule(rule) => self.cluster.relay.add(*rule),
            Step::CloseConnections(on, end) => self.cluster.relay.close_connections(*on, *end),
            Step::RefuseConnections => self.cluster.relay.refuse_connections(),
            Step::ClearRules => self.cluster.relay.clear(),
            Step::Server(words) => drop(self.cluster.stage.plane.control(words)?),
            Step::Snapshot => drop(self.cluster.stage.plane.control(&["snapshot", "plan"])?),
            Step::Restore => self.restore()?,
            Step::AdvanceVersions(count) => self.advance_versions(*count)?,
            Step::KillAt(moment, number, step) => self.kill_at(*moment, *number, step)?,
            Step::Restart(limits) => self.restart(limits)?,
            Step::Standby => self.stand_by()?,
            Step::Freeze => self.controller.signal(Signal::STOP)?,
            Step::Thaw => self.controller.signal(Signal::CONT)?,
            Step::Tamper(tampering) => self.tamper(*tampering)?,
            Step::Starve(percent, milliseconds) => self.starve(*percent, *milliseconds)?,
            Step::Sleep(milliseconds) => thread::sleep(Duration::from_millis(*milliseconds)),
            Step::AwaitSynced(parent, status, reason) => {
                self.await_synced(*parent, status, reason)?
            }
            Step::Converge => self.converge()?,
        }
        Ok(())
    }

    fn kill_at(&mut self, moment: Moment, number: usize, step: &Step) -> Result<()> {
        let relay = &self.cluster.relay;
        while relay.stopped.try_recv().is_ok() {}
        relay.arm(Some(moment));
        self.step(step)?;
        let begun = Instant::now();
        let mut count = 0;
        let relay = &self.cluster.relay;
        while let Ok(stopped) = relay
            .stopped
            .recv_timeout(KILL.saturating_sub(begun.elapsed()))
        {
            count += 1;
            if count == number {
                // Released only after the host has ended, so the host never sees the answer.
                self.restart_with(&options(self.cluster, self.plan, "a"))?;
                drop(stopped);
                return Ok(());
            }
            relay.arm(Some(moment));
            stopped.resume();
        }
        relay.arm(None);
        // Another write may have been intercepted in the meantime.
        while let Ok(stopped) = relay.stopped.try_recv() {
            stopped.resume();
        }
        Ok(())
    }

    fn restart(&mut self, limits: &[&str]) -> Result<()> {
        let mut options = options(self.cluster, self.plan, "a");
        options.limits = limits
            .iter()
            .filter(|limit| **limit != FRESH)
            .map(|limit| (*limit).to_owned())
            .collect();
        if limits.contains(&FRESH) {
            options.cache = None;
        }
        self.restart_with(&options)?;
        self.is_limited = !limits.is_empty();
        Ok(())
    }

    fn restart_with(&mut self, options: &HostOptions) -> Result<()> {
        self.is_alive()?;
        if let Some(process) = self.controller.process() {
            process.kill()?;
        }
        oracles::check_log(&self.controller.log())?;
        let kubeconfig = self.cluster.relay.kubeconfig.clone();
        self.controller = RunningController::start(self.subject, kubeconfig, options)?;
        self.is_limited = false;
        Ok(())
    }

    fn starve(&mut self, percent: u8, milliseconds: u64) -> Result<()> {
        /// Milliseconds in one stop-and-run cycle.
        const TURN: u64 = 100;
        let running = TURN * u64::from(percent) / 100;
        for _ in 0..milliseconds / TURN {
            self.controller.signal(Signal::STOP)?;
            thread::sleep(Duration::from_millis(TURN - running));
            self.controller.signal(Signal::CONT)?;
            thread::sleep(Duration::from_millis(running));
        }
        Ok(())
    }

    fn await_synced(&mut self, parent: Parent, status: &str, reason: &str) -> Result<()> {
        self.wait(
            &format!("{} becomes {status}/{reason}", parent.name()),
            |run| {
                let user = run.cluster.user();
                let object = user
                    .get(run.kind(parent.kind()), &parent.name())?
                    .context("the parent does not exist")?;
                ensure!(is_synced(&object, status, reason), "{:#}", object["status"]);
                Ok(())
            },
        )
    }

    fn converge(&mut self) -> Result<()> {
        let expected = self
            .cluster
            .desired_state(self.subject, &self.desired_parents.now);
        self.wait("the cluster is in the desired state", |run| {
            let actual = normal::state(run.cluster.user(), &run.namespace, KINDS)?;
            let differences = differences(&expected, &actual);
            ensure!(differences.is_empty(), "{}", differences.join("; "));
            Ok(())
        })
    }

    fn wait(&mut self, goal: &str, check: impl Fn(&Self) -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        while let Err(error) = check(self) {
            self.is_alive()?;
            if begun.elapsed() > self.patience {
                bail!("O-live: {goal}: not within {:?}: {error:#}", self.patience);
            }
            thread::sleep(INTERVAL);
        }
        Ok(())
    }

    /// Checks that the host has not exited on its own. It may exit only if it lost the lease, or
    /// with an error if limits are too tight.
    fn is_alive(&mut self) -> Result<()> {
        let Some(process) = self.controller.process() else {
            return Ok(());
        };
        let Some(status) = process.try_wait()? else {
            return Ok(());
        };
        let log = self.controller.log();
        if self.is_limited && status.code().is_some() {
            ensure!(
                log.contains("error"),
                "O-proc: the host ended without an error message"
            );
            return oracles::check_log(&log);
        }
        match self.standby.take() {
            Some(standby) if log.contains("lost the lease") => {
                oracles::check_log(&log)?;
                self.controller = standby;
                Ok(())
            }
            _ => bail!("O-proc: the host ended by itself with {status}"),
        }
    }

    fn stand_by(&mut self) -> Result<()> {
        let kubeconfig = self.cluster.stage.plane.kubeconfig();
        let standby = RunningController::start(
            self.subject,
            kubeconfig,
            &options(self.cluster, self.plan, "b"),
        )?;
        self.standby = Some(standby);
        self.wait("a second host stands by", |run| {
            let log = run
                .standby
                .as_ref()
                .map(RunningController::log)
                .unwrap_or_default();
            ensure!(log.contains("standing by"), "{log}");
            Ok(())
        })
    }

    /// Ends all active faults after an unfinished plan.
    fn end_faults(&mut self) {
        let relay = &self.cluster.relay;
        relay.arm(None);
        relay.clear();
        while relay.stopped.try_recv().is_ok() {}
        let plane = &self.cluster.stage.plane;
        let repairs: [&[&str]; 6] = [
            &["resume", "apiserver"],
            &["wait", "apiserver"],
            &["mend", "front"],
            &["mend", "apiserver-2"],
            &["front", "apiserver"],
            &["stop", "apiserver-2"],
        ];
        for words in repairs {
            // Fails for a server that was not broken; ignored here.
            drop(plane.control(words));
        }
        drop(self.allow());
        drop(self.apply_crd());
        let parents: BTreeSet<Parent> = self.foreign.keys().copied().collect();
        for parent in parents {
            drop(self.free_name(parent));
        }
    }

    /// Waits until the host stops writing (O-steady).
    fn settle(&mut self, marks: [usize; 2]) -> Result<()> {
        let quiet = Duration::from_millis(if is_full() { 3000 } else { 1000 });
        let begun = Instant::now();
        let mut since = Instant::now();
        let mut count = oracles::writes(self, marks)?.len();
        while since.elapsed() < quiet {
            thread::sleep(INTERVAL);
            let writes = oracles::writes(self, marks)?;
            if writes.len() > count {
                ensure!(
                    begun.elapsed() < Duration::from_secs(20),
                    "O-steady: the host does not stop writing: {:?}",
                    writes.last().map(Write::line)
                );
                (count, since) = (writes.len(), Instant::now());
            }
        }
        self.converge()
    }
}
